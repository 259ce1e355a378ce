//! TLS towards relays, with the certificates that the system trusts.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

/// The reason why no relay can be trusted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TlsError {
    /// The system has no certificates that can be read.
    #[error("this host trusts no certificates; install the package ca-certificates")]
    NoRoots,
    /// The library refuses its own settings.
    #[error("TLS: {0}")]
    Library(String),
}

/// What TLS needs, read once at the start: a confined process reads no file of the system, and
/// `nostr.relays` changes while it runs.
#[derive(Debug)]
pub struct Tls(Result<Arc<ClientConfig>, TlsError>);

impl Tls {
    /// Reads the certificates of the system.
    #[must_use]
    pub fn load() -> Self {
        let mut roots = RootCertStore::empty();
        // Certificates that cannot be read are few and old; the others count.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Self(Err(TlsError::NoRoots));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.map(|builder| builder.with_root_certificates(roots).with_no_client_auth());
        Self(
            config
                .map(Arc::new)
                .map_err(|error| TlsError::Library(error.to_string())),
        )
    }

    /// The settings of the library.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        self.0.clone()
    }
}
