# The gateway alone, without tests or tools.
#
#     docker build -t penstock .
#     docker run --read-only --tmpfs /tmp --cap-drop ALL --stop-timeout 20 -v penstock:/var/lib/penstock \
#       -p 127.0.0.1:8080:8080 -p 127.0.0.1:9600:9600 --name penstock penstock
#
# It writes to /var/lib/penstock (the store and recordings) and to /tmp, and nowhere else. It listens for S3P on 7500, for
# Pravega's controller on 9090 and its segments on 12345; the page for operators, on 9600, needs the token that it prints
# first, or that of PENSTOCK_MANAGEMENT_TOKEN. Other containers reach it as `penstock`; another name, or a proxy's, needs
# --allow-host. To stop takes up to drain.deadline_seconds, 10 by default. docs/sidecar.md runs it beside an application.

ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv --without-pip /opt/penstock
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY proto proto
COPY codecs codecs
COPY gateway gateway
COPY pipeline pipeline
COPY config config
RUN pip --python /opt/penstock/bin/python install --no-cache-dir --no-compile --constraint requirements.lock . \
 && /opt/penstock/bin/python -m compileall -q /opt/penstock/lib

FROM ${BASE}
LABEL org.opencontainers.image.title="penstock" \
      org.opencontainers.image.description="A multi-protocol gateway for append-only streams of records"
RUN groupadd --system --gid 10001 penstock \
 && useradd --system --uid 10001 --gid penstock --home-dir /var/lib/penstock --no-log-init penstock \
 && install -d -o penstock -g penstock -m 0750 /var/lib/penstock
COPY --from=build /opt/penstock /opt/penstock
COPY --from=build /opt/penstock/share/penstock/config/gateway.toml /etc/penstock/gateway.toml
ENV PATH=/opt/penstock/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/penstock
VOLUME ["/var/lib/penstock"]
EXPOSE 4437 8080 7500 9090 9092 9600 12345
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9600/live', timeout=2)"]
ENTRYPOINT ["penstock"]
# In a container only what is published reaches the ports, so they listen on every address of it: for any client, and for
# operators with the token.
CMD ["serve", "--config", "/etc/penstock/gateway.toml", "--data", "/var/lib/penstock", "--anonymous", \
     "--management", "0.0.0.0:9600", "--management-token", "auto", "--allow-host", "penstock", \
     "--durable", "0.0.0.0:4437", "--kafka", "0.0.0.0:9092", "--s2", "0.0.0.0:8080", "--s3p", "0.0.0.0:7500", \
     "--segment", "0.0.0.0:12345", "--controller", "0.0.0.0:9090"]
