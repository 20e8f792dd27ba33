FROM python:3.12-slim
LABEL dev.berth.managed="true" dev.berth.runtime="coding"
USER 0
RUN ["/bin/sh","-c","apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git curl ca-certificates ripgrep fd-find jq less procps && rm -rf /var/lib/apt/lists/* && ln -s /usr/bin/fdfind /usr/local/bin/fd"]
WORKDIR /workspace
RUN ["/bin/sh","-c","PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --no-cache-dir --disable-pip-version-check uv"]
