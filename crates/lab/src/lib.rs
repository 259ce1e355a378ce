//! The lab: networks of hosts on one machine, daemons in them, and measurements.
//!
//! | module | what it is |
//! |---|---|
//! | [`world`], [`host`], [`cable`] | hosts (network namespaces), cables and switches between them, roaming |
//! | [`emulator`] | cables with delay, loss, reordering, a rate, an MTU hole |
//! | [`firewall`] | firewalls: only answers enter, or no UDP passes |
//! | [`nat`] | NAT boxes: mapping, filtering and port assignment as RFC 4787 names them |
//! | [`child`], [`log`] | a process under test: its exit, its log, its resource use |
//! | [`daemon`], [`fips`], [`spec`] | a weft daemon, the reference daemon, the settings of both |
//! | [`traffic`] | pings, TCP with verified content, UDP flows |
//! | [`cpu_hog`] | a machine too slow for its daemon |
//! | [`relay`] | a middlebox that drops, duplicates, delays or corrupts chosen datagrams |
//! | [`scenario`] | topologies and steps in them, as files: `weft lab run`, `up`, `down`, `weft demo` |
//! | [`stats`] | the statistics of a few runs, with confidence intervals |
//! | [`mod@bench`], [`passthrough`] | tunnels measured side by side; a tunnel that does nothing |
//! | [`interrupt`], [`random`] | Ctrl-C; random numbers from a seed |
//!
//! The lab runs the built `weft` binary and reads its JSON, as a user would; it never calls the
//! node's code. Root is not needed if unprivileged user namespaces are enabled, and other programs
//! only for NAT boxes that are not the lab's own. Never here: protocol formats, and system calls
//! that need `unsafe` (weft-os).

pub mod bench;
pub mod cable;
pub mod child;
pub mod cpu_hog;
pub mod daemon;
pub mod emulator;
pub mod fips;
pub mod firewall;
pub mod host;
pub mod interrupt;
pub mod log;
pub mod nat;
pub mod passthrough;
pub mod random;
pub mod relay;
pub mod scenario;
pub mod spec;
pub mod stats;
pub mod traffic;
pub mod world;
