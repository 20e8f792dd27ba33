FROM debian:12
LABEL dev.berth.managed="true" dev.berth.runtime="plain"
USER 0
RUN ["/bin/sh","-c","name=agent; if grep -q \"^agent:\" /etc/passwd; then name=agent-1000; fi\nif ! grep -q \"^[^:]*:[^:]*:1000:\" /etc/passwd; then\n  grep -q \"^[^:]*:[^:]*:1000:\" /etc/group || echo \"$name:x:1000:\" >>/etc/group\n  echo \"$name:x:1000:1000::/home/$name:/bin/sh\" >>/etc/passwd\nfi\nhome=$(awk -F: '$3 == 1000 {print $6; exit}' /etc/passwd)\nmkdir -p \"$home\" && chown 1000 \"$home\""]
WORKDIR /workspace
RUN ["/bin/sh","-c","chown 1000 /workspace"]
RUN ["/bin/sh","-c","if python3 -c 'import venv, ensurepip' 2>/dev/null; then python3 -m venv /opt/venv && chown -R 1000 /opt/venv; fi"]
ENV PATH=/opt/venv/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
USER 1000
