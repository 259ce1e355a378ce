//! The system calls and kernel interfaces that Weft uses. Nothing here knows the protocol.
//!
//! | module | what it is |
//! |---|---|
//! | [`tun`] | the TUN interface: virtio header, TSO/USO, several queues |
//! | [`tap`] | the TAP interface: Ethernet frames, for the lab |
//! | [`udp`] | the UDP socket: GSO out, GRO in, never fragments, counts each fallback |
//! | [`socket`], [`icmp`] | one interface only; pings that are never fragmented |
//! | [`tcp`] | the kernel's figures of a TCP connection |
//! | [`poll`] | waiting for descriptors, and waking a thread that waits |
//! | [`netlink`] | interfaces, addresses and routes of one network namespace |
//! | [`ethtool`] | the offloads of an interface |
//! | [`sysctl`] | the per-interface settings that netlink does not reach |
//! | [`netns`] | network namespaces held by a descriptor, and threads and processes inside them |
//! | [`process`] | privileges, memory and CPU time |
//! | [`lock`], [`clock`], [`random`] | a file lock, a clock that counts suspend, random bytes |
//!
//! System calls go through rustix, which is safe. `unsafe` lives here, for the calls that rustix
//! lacks (docs/decisions/0030-rustix.md), and, for loads and stores of vectors, in weft-gcm: every
//! block here is one system call or the reading of its result, with the reason why it is sound.
//! Never here: threads that serve packets (weft-plane), policy about which address or route to set
//! (weft-desired, weft-host), topologies (weft-lab).
//!
//! Linux only. A port adds a sibling of each module with the same public items.
#![allow(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("weft-os is written for Linux only so far");

#[cfg(target_os = "linux")]
pub mod clock;
#[cfg(target_os = "linux")]
pub mod ethtool;

pub mod file;
#[cfg(target_os = "linux")]
pub mod icmp;
#[cfg(target_os = "linux")]
pub mod lock;
#[cfg(target_os = "linux")]
pub mod netlink;
#[cfg(target_os = "linux")]
pub mod netns;
#[cfg(target_os = "linux")]
pub mod poll;
#[cfg(target_os = "linux")]
pub mod process;
#[cfg(target_os = "linux")]
pub mod random;
#[cfg(target_os = "linux")]
pub mod socket;
#[cfg(target_os = "linux")]
mod syscall;
#[cfg(target_os = "linux")]
pub mod sysctl;
#[cfg(target_os = "linux")]
pub mod tap;
#[cfg(target_os = "linux")]
pub mod tcp;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub mod test_support;
#[cfg(target_os = "linux")]
pub mod tun;
#[cfg(target_os = "linux")]
pub mod udp;
