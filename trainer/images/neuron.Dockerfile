# The trainer on an image of AWS's with PyTorch for Trainium: PyTorch/XLA (trn1) or the native TorchNeuron (trn2).
#
# Torch, the compiler, the runtime and EFA come with the base and are tested together by AWS. What is installed here must
# not move any of it: the packages that are there already are handed to pip as constraints, and pip stops where a package
# would need another version of one. So h5py, tensorboard and boto3 have the base's version, and the base has a digest.
ARG BASE
FROM ${BASE}

USER root
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

COPY trainer/images/neuron.txt /tmp/requirements.txt
RUN pip list --format=freeze > /tmp/base.txt \
 && pip install --no-cache-dir --constraint /tmp/base.txt --requirement /tmp/requirements.txt \
 && rm /tmp/base.txt /tmp/requirements.txt

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
# The base's entry point prepares for other launchers; here the pod says what to run.
ENTRYPOINT []
CMD ["python", "-m", "trainer.pretrain", "--help"]
