FROM node:20-slim
LABEL dev.berth.managed="true" dev.berth.runtime="web"
USER 0
RUN ["/bin/sh","-c","name=agent; if grep -q \"^agent:\" /etc/passwd; then name=agent-1001; fi\nif ! grep -q \"^[^:]*:[^:]*:1001:\" /etc/passwd; then\n  grep -q \"^[^:]*:[^:]*:1001:\" /etc/group || echo \"$name:x:1001:\" >>/etc/group\n  echo \"$name:x:1001:1001::/home/$name:/bin/sh\" >>/etc/passwd\nfi\nhome=$(awk -F: '$3 == 1001 {print $6; exit}' /etc/passwd)\nmkdir -p \"$home\" && chown 1001 \"$home\""]
WORKDIR /app
RUN ["/bin/sh","-c","chown 1001 /app"]
ENV PATH=/app/node_modules/.bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
USER 1001
RUN ["/bin/sh","-c","npm install --no-audit --no-fund --no-update-notifier '@types/node@^20' && npm cache clean --force"]
