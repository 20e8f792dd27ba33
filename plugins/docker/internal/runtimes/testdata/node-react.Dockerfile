FROM node:20-slim
LABEL dev.berth.managed="true" dev.berth.runtime="node-react"
USER 0
WORKDIR /app
ENV PATH=/app/node_modules/.bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
RUN ["/bin/sh","-c","npm install --no-audit --no-fund --no-update-notifier typescript vite react react-dom @types/react && npm cache clean --force"]
