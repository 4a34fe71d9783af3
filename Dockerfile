# One image with everything installed; see docs/deployment.md.
#   docker build .                                         NVIDIA's Triton, with torch from PyPI
#   docker build --build-arg FLAVOUR=vllm .                NVIDIA's Triton with vLLM, for engine vllm
#   docker build --build-arg FLAVOUR=trtllm .              NVIDIA's Triton with TensorRT-LLM, for engine tensorrt_llm
#   docker build --build-arg FLAVOUR=cpu .                 no GPU
#   docker build --target sbom --output sbom .             bill of materials and licences; --build-arg SBOM_OF=cpu, front, dynamo
ARG FLAVOUR=gpu
# Release of Triton, for gpu any, for vllm 26.07 or 26.08; empty is the one that each names below.
ARG TRITON=
ARG SBOM_OF=gpu
# Commit of the source, for the label of the image.
ARG COMMIT=
ARG PYTHON=python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c

# This project as a wheel: NVIDIA's containers have a setuptools of their own, which must stay.
FROM ${PYTHON} AS wheel
WORKDIR /source
COPY requirements/cpu.txt requirements/cpu.txt
RUN sed -n '/^setuptools==/,/^ *#/p' requirements/cpu.txt > /tmp/setuptools.txt \
    && python3 -m pip install --no-cache-dir --no-deps --require-hashes --requirement /tmp/setuptools.txt
COPY pyproject.toml README.md LICENSE ./
COPY cosyvoice_runtime cosyvoice_runtime
COPY client client
COPY scripts/making scripts/making
RUN python3 -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# An environment of its own, as what Python packages the image has differs from release to release.
FROM nvcr.io/nvidia/tritonserver:${TRITON:-26.10}-py3 AS gpu
ENV PIP_CONSTRAINT= \
    PATH=/opt/venv/bin:$PATH
COPY requirements/gpu.txt /packages/
RUN /usr/bin/python3 -m venv --without-pip /opt/venv \
    && /usr/bin/python3 -m pip --python /opt/venv/bin/python install --no-cache-dir --no-deps --require-hashes \
        --requirement /packages/gpu.txt
COPY requirements/cpu.txt /packages/
# The image's tritonserver is the one that runs, so the package with another one is left out.
RUN sed '/^nvidia-pytriton==/,/^ *#/d' /packages/cpu.txt > /packages/server.txt \
    && /usr/bin/python3 -m pip --python /opt/venv/bin/python install --no-cache-dir --no-deps --require-hashes \
        --requirement /packages/server.txt
COPY --from=wheel /wheels /packages/wheels
# The Triton language compiles launchers of kernels with a C compiler and Python's headers.
RUN /usr/bin/python3 -m pip --python /opt/venv/bin/python install --no-cache-dir --no-deps /packages/wheels/*.whl \
    && (command -v gcc || command -v clang) \
    && test -e "$(python3 -c "import sysconfig; print(sysconfig.get_path('include'))")/Python.h" \
    && python3 -c "import cosyvoice_client, cosyvoice_runtime.local.cli, cosyvoice_runtime.supervisor" \
    && python3 -c "import cosyvoice_runtime, onnx, onnxruntime, tokenizers, torch, tritonclient.grpc, tritonclient.http"

FROM nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 AS trtllm
ENV PIP_BREAK_SYSTEM_PACKAGES=1
COPY scripts/container_packages.py requirements/cpu.txt requirements/nvidia.txt requirements/nvidia-trtllm.txt /packages/
RUN python3 /packages/container_packages.py --lock /packages/cpu.txt /packages/nvidia.txt /packages/nvidia-trtllm.txt
COPY --from=wheel /wheels /packages/wheels
RUN python3 -m pip install --no-cache-dir --no-deps /packages/wheels/*.whl \
    && python3 -c "import cosyvoice_client, cosyvoice_runtime.local.cli, cosyvoice_runtime.supervisor" \
    && python3 -c "import cosyvoice_runtime, onnx, onnxruntime, tokenizers, torch, tritonclient.grpc, tritonclient.http"

# Its numpy 2 stays, which vLLM uses.
FROM nvcr.io/nvidia/tritonserver:${TRITON:-26.07}-vllm-python-py3 AS vllm
ENV PIP_BREAK_SYSTEM_PACKAGES=1
COPY scripts/container_packages.py requirements/cpu.txt requirements/nvidia.txt /packages/
RUN python3 /packages/container_packages.py --lock /packages/cpu.txt /packages/nvidia.txt
COPY --from=wheel /wheels /packages/wheels
RUN python3 -m pip install --no-cache-dir --no-deps /packages/wheels/*.whl \
    && python3 -c "import cosyvoice_client, cosyvoice_runtime.local.cli, cosyvoice_runtime.supervisor" \
    && python3 -c "import cosyvoice_runtime, onnx, onnxruntime, tokenizers, torch, tritonclient.grpc, tritonclient.http"

FROM ${PYTHON} AS cpu
# Names an index with CPU builds of torch; without one, torch brings several GB of CUDA libraries.
ARG PIP_EXTRA_INDEX_URL=
# --no-torch: for the engine and the backend that run on ONNX Runtime alone.
ARG ENVIRONMENT=
WORKDIR /opt/cosyvoice
# No more than the installation looks at, so that a change of the code does not repeat it.
COPY pyproject.toml README.md ./
COPY requirements requirements
COPY scripts/environment.py scripts/base_python.py scripts/
COPY cosyvoice_runtime/__init__.py cosyvoice_runtime/__init__.py
COPY scripts/making/__init__.py scripts/making/__init__.py
COPY client client
RUN PIP_NO_CACHE_DIR=1 python3 scripts/environment.py --venv /opt/venv ${ENVIRONMENT}
ENV PATH=/opt/venv/bin:$PATH

# OpenAI's speech API, which needs neither Triton nor torch.
FROM ${PYTHON} AS front
WORKDIR /opt/cosyvoice
COPY requirements/front.txt requirements/front.txt
RUN python3 -m pip install --no-cache-dir --no-deps --require-hashes --requirement requirements/front.txt \
    && install --directory --owner=10001 --group=10001 voices
COPY cosyvoice_runtime cosyvoice_runtime
COPY client client
COPY cosyvoice_front cosyvoice_front
COPY deploy deploy
ENV PYTHONPATH=/opt/cosyvoice:/opt/cosyvoice/client \
    PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --retries=3 \
    CMD ["python3", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8080); \
c.request('GET', '/health'); assert c.getresponse().status == 200"]
ARG COMMIT
LABEL org.opencontainers.image.title="cosyvoice2" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${COMMIT}"
CMD ["python3", "-m", "cosyvoice_front"]

# A worker of NVIDIA Dynamo: the front without its socket.
FROM front AS dynamo
COPY requirements/dynamo.txt requirements/dynamo.txt
USER root
RUN python3 -m pip install --no-cache-dir --no-deps --require-hashes --requirement requirements/dynamo.txt
COPY cosyvoice_dynamo cosyvoice_dynamo
USER 10001
HEALTHCHECK NONE
CMD ["python3", "-m", "cosyvoice_dynamo"]

# What the Python packages of a stage are, and their licences.
FROM ${SBOM_OF} AS inventory
USER root
WORKDIR /inventory
COPY requirements/sbom.txt requirements/sbom.txt
COPY scripts/sbom.py scripts/sbom.py
RUN PIP_CONSTRAINT= python3 scripts/sbom.py /sbom

FROM scratch AS sbom
COPY --from=inventory /sbom /

FROM ${FLAVOUR} AS server
WORKDIR /opt/cosyvoice
COPY . .
RUN useradd --uid 10001 --create-home cosyvoice \
    && install --directory --owner=cosyvoice --group=cosyvoice build cache checkpoints engines logs voices
# What run.sh needs is installed; the host's port mappings decide who can reach the server.
# What vLLM, Triton's compiler and the driver keep from one start to the next lies in a volume.
ENV VENV=system \
    HOME=/opt/cosyvoice/cache \
    XDG_CACHE_HOME=/opt/cosyvoice/cache \
    TRITON_CACHE_DIR=/opt/cosyvoice/cache/triton \
    CUDA_CACHE_PATH=/opt/cosyvoice/cache/cuda \
    PYTHONUNBUFFERED=1 \
    COSYVOICE_SERVER__HOST=0.0.0.0 \
    COSYVOICE_SERVER__LOG_FILE=logs/tritonserver.log
USER 10001
EXPOSE 8000 8001 8003
# Speaks a few tokens. The first start downloads weights and may build engines.
HEALTHCHECK --interval=60s --timeout=30s --start-period=2h --retries=3 \
    CMD ["python3", "scripts/health.py"]
ARG COMMIT
LABEL org.opencontainers.image.title="cosyvoice2" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${COMMIT}"
CMD ["bash", "run.sh", "0", "3"]
