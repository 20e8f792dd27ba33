FROM debian:12
LABEL dev.berth.managed="true" dev.berth.runtime="tools"
USER 0
RUN ["/bin/sh","-c","apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git g++ libstdc++6 && rm -rf /var/lib/apt/lists/*"]
WORKDIR /workspace
