# Trainflow's own small image: staging and publishing, which have nothing to do with what a run trains.
ARG BASE
FROM ${BASE}

USER root
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# Wheels alone, since there is no compiler here, and no other files than the pins name.
COPY trainer/images/tools.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --only-binary :all: --require-hashes --requirement /tmp/requirements.txt \
 && pip check \
 && rm /tmp/requirements.txt

# Some libraries ask who they are; Ubuntu's images have a user 1000 already.
RUN getent passwd 1000 || useradd --uid 1000 --no-create-home trainer

# Owned by root and compiled now: the program can change neither itself nor its environment.
COPY . /opt/trainflow/
ENV PYTHONPATH=/opt/trainflow \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp
WORKDIR /opt/trainflow
RUN python -m compileall -q trainer trainflow \
 && python -m trainer.images.smoke tools

USER 1000:1000
CMD ["python", "-m", "trainer.stage", "--help"]
