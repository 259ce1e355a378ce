//! The daemon: puts core, plane and os together, and everything that a person sees of it.
//!
//! | module | what it is |
//! |---|---|
//! | [`daemon`] | the running node |
//! | [`config`] | the TOML file, checked setting by setting |
//! | [`broker`] | what takes root's rights after the daemon has given them up |
//! | [`state`] | the state directory: its lock, its files |
//! | [`fast_peers`] | who has ever been fast, kept between runs |
//! | [`known`] | the peers' last addresses, kept between runs |
//! | [`keyfile`] | the secret key on disk |
//! | [`peer`] | names of peers, and how a person refers to one |
//! | [`control`] | the control socket, both sides |
//! | [`status`] | the documents that it carries |
//! | [`trace`] | where a daemon's time goes, while a client asks |
//! | [`dns`] | names: a DNS responder for `.fips` |
//! | [`logging`] | logs on standard error |
//!
//! Never here: byte layouts (weft-wire), decisions of the protocol (weft-core), packets (weft-packet,
//! weft-plane), system calls (weft-os), the command line (weft).

pub mod broker;
pub mod config;
pub mod control;
pub mod daemon;
pub mod dns;
pub mod fast_peers;
pub mod keyfile;
pub mod known;
pub mod logging;
pub mod peer;
pub mod state;
mod statefile;
pub mod status;
pub mod trace;

pub use weft_noise::Identity;

/// The version of this build, as in its package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of this build: 12 hexadecimal digits, what the packager said in `WEFT_COMMIT`, or
/// `unknown`.
pub const COMMIT: &str = env!("WEFT_BUILD_COMMIT");

/// Both in one line, for `--version`.
pub const VERSION_LINE: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("WEFT_BUILD_COMMIT"), ")");
