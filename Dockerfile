# Works with Docker's classic builder, BuildKit, podman and buildah, for amd64 and arm64. So it has no
# syntax line (a builder would pull it), no --mount, no heredoc, no --chmod, and no TARGETARCH.
ARG NODE_IMAGE=node:26-bookworm-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /notes-users
COPY package.json package-lock.json .npmrc LICENSE ./
RUN npm ci --ignore-scripts
COPY scripts ./scripts
COPY src ./src
COPY db ./db
COPY openapi.json ./
COPY image ./image
# The time of every file in the image, in seconds since 1970.
ARG SOURCE_DATE_EPOCH=0
RUN npm run build && node image/rootfs.ts /rootfs > /rootfs.sha256 && cat /rootfs.sha256

# No WORKDIR here: BuildKit would add a layer for it.
FROM scratch
COPY --from=build /rootfs/ /
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="notes-users" \
      org.opencontainers.image.description="A notes and users HTTP API: JWT and Basic authentication, users on SQLite or Postgres" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# glibc returns freed buffers of this size or more to the system. By default it raises the threshold by itself.
# It asks the next name server after a second, before an attempt to connect ends. By default after five.
ENV MALLOC_MMAP_THRESHOLD_=32768 \
    RES_OPTIONS=timeout:1 \
    ADMIN_PORT=3001 \
    DATABASE_URL=sqlite:/data/service.db
USER 65532:65532
EXPOSE 3000 3001
VOLUME ["/data"]
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s --retries=3 \
  CMD ["/usr/local/bin/node", "/app/dist/main.cjs", "--live"]
# V8 needs half: with 40 percent it does little but collect garbage while clients pipeline requests.
# --disable-warning hides that --allow-net is experimental. The permission model does not cover
# node:sqlite: there the user, the read-only root and the dropped capabilities are the limits.
# Without its asterisk, node would take a missing /run/secrets for a file, and refuse to read what is below it.
ENTRYPOINT ["/usr/local/bin/node", \
  "--max-old-space-size-percentage=50", "--max-semi-space-size=4", \
  "--disable-warning=ExperimentalWarning", \
  "--disable-proto=delete", \
  "--disallow-code-generation-from-strings", \
  "--permission", \
  "--allow-net", \
  "--allow-fs-read=/app/", \
  "--allow-fs-read=/data/", \
  "--allow-fs-read=/run/secrets/*", \
  "--allow-fs-read=/proc/self/fd", \
  "--allow-fs-read=/proc/self/limits", \
  "--allow-fs-write=/data/", \
  "/app/dist/main.cjs"]
