# Two targets: `docker build --target cpu .` and `docker build --target cuda .`
# The CUDA libraries come with torch's own wheel; the host needs the NVIDIA driver and container toolkit.

FROM python:3.11.14-slim-bookworm AS source
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY deploy ./deploy
COPY app ./app
COPY bench ./bench
COPY engine ./engine
COPY grammars ./grammars
COPY sdk ./sdk
COPY alembic ./alembic

FROM source AS build-cpu
ENV TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN deploy/install.sh /opt/pointbox

FROM source AS build-cuda
RUN deploy/install.sh /opt/pointbox

FROM python:3.11.14-slim-bookworm AS runtime
# All that is written lies under /data or /tmp, so that the root file system can be read-only.
ENV PATH=/opt/pointbox/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/data \
    HF_HOME=/data/huggingface \
    POINTBOX_DATA_DIR=/data \
    POINTBOX_HOST=0.0.0.0 \
    POINTBOX_PORT=8000
RUN install -d -o 10001 -g 10001 /data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/livez', timeout=4)"]
ENTRYPOINT ["pointbox"]
CMD ["serve"]

FROM runtime AS cuda
ENV POINTBOX_DEVICE=cuda
COPY --from=build-cuda /opt/pointbox /opt/pointbox

FROM runtime AS cpu
COPY --from=build-cpu /opt/pointbox /opt/pointbox
