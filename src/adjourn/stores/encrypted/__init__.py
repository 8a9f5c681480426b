"""The store that encrypts what another one keeps."""
