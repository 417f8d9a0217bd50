# The gateway alone; MongoDB runs elsewhere (compose.yaml shows the two together).
FROM python:3.13-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/gateway \
 && /opt/gateway/bin/pip install --no-cache-dir --disable-pip-version-check .

FROM python:3.13-slim-bookworm
# A number, so that Kubernetes can see that it isn't root.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin gateway
COPY --from=build /opt/gateway /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GATEWAY_BIND=0.0.0.0:8080
USER 10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/livez', timeout=2)"]
ENTRYPOINT ["gateway", "serve"]
