# The trainer on CPU instances.
ARG BASE
FROM ${BASE}

USER root
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# torch.compile translates graphs to C++.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*

# torch from its own index, where the build without CUDA is; everything else from PyPI, in the files that the pins name.
COPY trainer/images/cpu.txt /tmp/requirements.txt
RUN grep -o '^torch==[^ ]*' /tmp/requirements.txt > /tmp/torch.txt \
 && pip install --no-cache-dir --no-deps --index-url https://download.pytorch.org/whl/cpu --requirement /tmp/torch.txt \
 && pip install --no-cache-dir --require-hashes --requirement /tmp/requirements.txt \
 && pip check \
 && rm /tmp/torch.txt /tmp/requirements.txt

# Some libraries ask who they are; Ubuntu's images have a user 1000 already.
RUN getent passwd 1000 || useradd --uid 1000 --no-create-home trainer

# Owned by root and compiled now: the program can change neither itself nor its environment.
COPY . /opt/trainflow/
ENV PYTHONPATH=/opt/trainflow \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp
WORKDIR /opt/trainflow
RUN python -m compileall -q trainer trainflow \
 && python -m trainer.images.smoke training

USER 1000:1000
CMD ["python", "-m", "trainer.pretrain", "--help"]
