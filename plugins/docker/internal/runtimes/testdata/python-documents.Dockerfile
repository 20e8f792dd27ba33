FROM python:3.12-slim
LABEL dev.berth.managed="true" dev.berth.runtime="python-documents"
USER 0
WORKDIR /workspace
RUN ["/bin/sh","-c","PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --no-cache-dir --disable-pip-version-check pypdf python-docx openpyxl pillow"]
