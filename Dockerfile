# The gateway alone; MongoDB runs elsewhere (compose.yaml shows the two together).
# A tag moves. To build the same image again, name the base by the digest that you have checked:
# --build-arg PYTHON_IMAGE=python:3.13-slim-bookworm@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY requirements.lock .
RUN python -m venv /opt/gateway \
 && /opt/gateway/bin/pip install --no-cache-dir --disable-pip-version-check \
      --require-hashes --requirement requirements.lock
COPY . .
# Everything is there: nothing else is fetched. What is only needed to build is removed.
RUN /opt/gateway/bin/pip install --no-cache-dir --disable-pip-version-check \
      --no-index --no-deps --no-build-isolation . \
 && /opt/gateway/bin/pip uninstall --yes --quiet setuptools markdown-it-py mdurl pyyaml

FROM ${PYTHON_IMAGE}
# A number, so that Kubernetes can see that it isn't root.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin gateway
COPY --from=build /opt/gateway /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GATEWAY_BIND=0.0.0.0:8080
USER 10001
EXPOSE 8080
# Asks /livez where GATEWAY_BIND and GATEWAY_TLS_CERTIFICATE say that it is.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "-m", "gateway.cli.liveness"]
# docker run IMAGE serves; docker run IMAGE token create --name ops --grant 'admin:*' issues a token.
ENTRYPOINT ["gateway"]
CMD ["serve"]
