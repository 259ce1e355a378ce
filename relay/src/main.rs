//! A relay of Nostr at the address of its first argument, until it is killed. It keeps events in memory.
//! With the paths of a certificate and its key, both in PEM, it speaks TLS.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use nostr_relay_builder::LocalRelay;
use nostr_relay_builder::builder::{RateLimit, RelayBuilder};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const USAGE: &str = "usage: weft-test-relay IP:PORT [CERTIFICATE KEY]";

type Failure = Box<dyn Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [at] => {
            let relay = start(at.parse()?).await?;
            println!("{}", relay.url().await);
            std::future::pending::<()>().await;
        }
        [at, certificate, key] => {
            let acceptor = acceptor(certificate.as_ref(), key.as_ref())?;
            let at: SocketAddr = at.parse()?;
            // Plain TCP ends at an address that other hosts do not reach.
            let inner = SocketAddr::from((Ipv4Addr::LOCALHOST, at.port()));
            let _relay = start(inner).await?;
            let listener = TcpListener::bind(at).await?;
            println!("wss://{at}");
            serve(&listener, &acceptor, inner).await?;
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

async fn start(at: SocketAddr) -> Result<LocalRelay, Failure> {
    let rate = RateLimit {
        max_reqs: 500,
        notes_per_minute: 6_000,
    };
    let builder = RelayBuilder::default().addr(at.ip()).port(at.port());
    let relay = LocalRelay::new(builder.rate_limit(rate));
    relay.run().await?;
    Ok(relay)
}

fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, Failure> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let config = ServerConfig::builder().with_no_client_auth();
    Ok(TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key)?)))
}

/// Passes on each connection, without its TLS, to the relay at `inner`.
async fn serve(listener: &TcpListener, acceptor: &TlsAcceptor, inner: SocketAddr) -> Result<(), Failure> {
    loop {
        let (stream, _) = listener.accept().await?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A client that refuses the certificate ends the connection.
            let Ok(mut outside) = acceptor.accept(stream).await else {
                return;
            };
            if let Ok(mut inside) = TcpStream::connect(inner).await {
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            }
        });
    }
}
