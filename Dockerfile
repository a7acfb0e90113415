# The static binary and nothing else; make image builds it.
FROM scratch
COPY bin/capi-proxy-patcher /capi-proxy-patcher
USER 65532:65532
ENTRYPOINT ["/capi-proxy-patcher"]
CMD ["manager"]
