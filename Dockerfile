# The gateway alone, without tests or tools.  docker run -p 8080:8080 -p 7500:7500 -p 9090:9090 -p 12345:12345 \
#                                               -v penstock:/var/lib/penstock penstock

FROM python:3.11-slim AS build
RUN python -m venv /opt/penstock
WORKDIR /src
COPY pyproject.toml README.md ./
COPY proto proto
COPY codecs codecs
COPY gateway gateway
COPY pipeline pipeline
RUN /opt/penstock/bin/pip install --no-cache-dir .

FROM python:3.11-slim
RUN groupadd --system --gid 10001 penstock \
 && useradd --system --uid 10001 --gid penstock --home-dir /var/lib/penstock --no-log-init penstock \
 && install -d -o penstock -g penstock -m 0750 /var/lib/penstock
COPY --from=build /opt/penstock /opt/penstock
COPY config/gateway.toml /etc/penstock/gateway.toml
ENV PATH=/opt/penstock/bin:$PATH PYTHONUNBUFFERED=1
USER penstock
WORKDIR /var/lib/penstock
VOLUME /var/lib/penstock
EXPOSE 8080 7500 9090 12345
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=2)"]
ENTRYPOINT ["penstock"]
# In a container only what is published reaches the ports, so they listen on every address of it.
CMD ["serve", "--config", "/etc/penstock/gateway.toml", "--s2", "0.0.0.0:8080", "--s3p", "0.0.0.0:7500", \
     "--segment", "0.0.0.0:12345", "--controller", "0.0.0.0:9090", "--data", "/var/lib/penstock"]
