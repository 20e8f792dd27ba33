FROM localhost:5000/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
LABEL dev.berth.managed="true" dev.berth.runtime="setup"
USER 0
RUN ["/bin/sh","-c","echo 'a' && echo \"$HOME\" \\"]
RUN ["/bin/sh","-c","cat <<EOF\nRUN evil\nEOF\nUSER 7"]
WORKDIR /workspace
