FROM python:3.12-slim
LABEL dev.berth.managed="true" dev.berth.runtime="ml"
USER 0
RUN ["/bin/sh","-c","name=agent; if grep -q \"^agent:\" /etc/passwd; then name=agent-1000; fi\nif ! grep -q \"^[^:]*:[^:]*:1000:\" /etc/passwd; then\n  grep -q \"^[^:]*:[^:]*:1000:\" /etc/group || echo \"$name:x:1000:\" >>/etc/group\n  echo \"$name:x:1000:1000::/home/$name:/bin/sh\" >>/etc/passwd\nfi\nhome=$(awk -F: '$3 == 1000 {print $6; exit}' /etc/passwd)\nmkdir -p \"$home\" && chown 1000 \"$home\""]
WORKDIR /workspace
RUN ["/bin/sh","-c","chown 1000 /workspace"]
RUN ["/bin/sh","-c","python3 -m venv /opt/venv && chown -R 1000 /opt/venv"]
ENV PATH=/opt/venv/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
USER 1000
RUN ["/bin/sh","-c","PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --no-cache-dir --disable-pip-version-check 'torch==2.5.*' 'uvicorn[standard]>=0.30,<1' 'numpy!=2.0'"]
