FROM jupyter/base-notebook
LABEL dev.berth.managed="true" dev.berth.runtime="based"
USER 0
WORKDIR /workspace
RUN ["/bin/sh","-c","chown jovyan /workspace"]
RUN ["/bin/sh","-c","PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --no-cache-dir --disable-pip-version-check polars"]
USER jovyan
