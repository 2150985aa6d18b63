"""S3 URLs, `s3://bucket/key`: which object, or which prefix, a URL names."""

from __future__ import annotations

from dataclasses import dataclass

SCHEME = "s3"


@dataclass(frozen=True)
class S3Url:
    """A bucket and a key, or the beginning of one."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{SCHEME}://{self.bucket}/{self.key}"

    @property
    def is_prefix(self) -> bool:
        """Whether it is about every object below a key, and not about one object."""
        return not self.key or self.key.endswith("/")

    def below(self, name: str) -> S3Url:
        """The object of a name below this prefix."""
        separator = "" if self.is_prefix else "/"
        return S3Url(self.bucket, f"{self.key}{separator}{name}")


def parse_s3_url(url: str) -> S3Url | None:
    """Bucket and key of an S3 URL; None if it is another URL, or names no bucket.

    The key is everything behind the bucket's slash, as S3 stores it: `?` and `#` are characters like any other (Amazon
    S3 user guide, "Naming Amazon S3 objects"), so the rules of web addresses do not apply.
    """
    scheme, separator, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if not separator or scheme.lower() != SCHEME or not bucket:
        return None
    return S3Url(bucket, key)
