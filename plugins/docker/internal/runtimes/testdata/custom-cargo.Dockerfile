FROM rust:1
LABEL dev.berth.managed="true" dev.berth.runtime="crab"
USER 0
RUN ["/bin/sh","-c","cargo install --root /usr/local ripgrep@14.1.0 && rm -rf \"${CARGO_HOME:-$HOME/.cargo}/registry\""]
WORKDIR /src
