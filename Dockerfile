# Two images, built without network from what `just wheels` collects:
#   driver     the last stage: Python and the installed package; no compiler, no pip
#   simulator  driver, and a simulated Ascend board ready to be laid out on a node
# And inventory: those files of the driver's image that tell what is in it, for `just sbom`.
# Both base images must have the same Python 3.13 at the same path; BUILD_IMAGE has pip and cc.
ARG BUILD_IMAGE=docker.io/library/python:3.13-trixie
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-trixie


FROM ${BUILD_IMAGE} AS install
COPY requirements/runtime.txt /src/runtime.txt
COPY build/wheels /src/wheels
COPY build/dist /src/dist
RUN python3 -m venv --without-pip /opt/npu-dra \
    && python3 -m pip --python /opt/npu-dra/bin/python3 install --no-compile --no-index \
        --find-links /src/wheels --require-hashes --requirement /src/runtime.txt \
    && python3 -m pip --python /opt/npu-dra/bin/python3 install --no-compile --no-index \
        --no-deps /src/dist/*.whl \
    # Without bytecode the daemon takes a second longer to start. Unchecked: nothing here changes.
    && /opt/npu-dra/bin/python3 -m compileall -q --invalidation-mode unchecked-hash /opt/npu-dra


FROM install AS board
RUN /opt/npu-dra/bin/python3 -c 'from pathlib import Path; \
        from trio_npu_dra.simulator.build import compile_simulator; \
        compile_simulator(Path("/usr/local/share/trio-npu-dra/simulator"))'


FROM ${PYTHON_IMAGE} AS runtime
# The slim image ships pip, and no bytecode of the standard library.
RUN rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/bin/pip* \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -x '/(idlelib|test|turtledemo)/' \
        "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=install /opt/npu-dra /opt/npu-dra
ENV PATH=/opt/npu-dra/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1
LABEL org.opencontainers.image.title="trio-npu-dra" \
      org.opencontainers.image.description="Kubernetes DRA driver for Huawei Ascend NPUs" \
      org.opencontainers.image.licenses="Apache-2.0"
ENTRYPOINT ["npu-dra", "serve"]


FROM runtime AS simulator
COPY --from=board /usr/local/share/trio-npu-dra /usr/local/share/trio-npu-dra


FROM scratch AS inventory
COPY --from=runtime /var/lib/dpkg/status /var/lib/dpkg/status
COPY --from=runtime /opt/npu-dra/pyvenv.cfg /opt/npu-dra/pyvenv.cfg
COPY --from=runtime /opt/npu-dra/lib /opt/npu-dra/lib


FROM runtime AS driver
