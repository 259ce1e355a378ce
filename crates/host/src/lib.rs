//! The facts that a node sets up in its host, and keeps as they are.
//!
//! A fact is something in the kernel or in another program that a node needs: an address of its
//! interface, a route. Each has a mark by which it is told from those of others (the interface itself,
//! `proto 119` of routes and rules, the name of a table), a look that reads it back, and a watch that
//! says when to look. A fact that another program removes or changes is set up again at once; if that
//! goes on, once in two seconds, and status and log say so. Nothing without the mark is touched.
//!
//! | module | what it is |
//! |---|---|
//! | [`tun`] | the node's own interface: created, and set up for the first time |
//! | [`routes`] | the routes to subnets behind peers, and which of them would lead the underlay astray |
//! | [`interface`] | addresses, MTU and routes of the node's own interface: wanted, present, missing |
//! | [`surroundings`] | the interfaces, addresses and routes of others that a node depends on |
//! | [`interest`] | which changes of the network matter; pure |
//! | [`watch`] | the thread that hears of changes |
//! | [`exit`] | exits, as the system carries them out |
//! | [`faults`] | what else keeps packets from passing: found, and not changed |
//! | [`flows`] | the flows that the kernel knows |
//! | [`managers`] | NetworkManager and systemd-networkd leave the interface alone |
//! | [`pace`] | when a fact that was removed is set up again; pure |
//! | [`broker`] | the process that keeps root's rights after the daemon has given them up |
//! | [`names`] | the sockets for names, and which resolver is set up; once, at the start |
//! | [`dns`] | names: a DNS responder, and the set-up of the system's resolver |
//! | [`hosts`] | the addresses of host names, and when they are looked up; pure |
//! | [`uplinks`] | the interfaces through which the host reaches other networks |
//!
//! To add a fact of the interface: a field of [`interface::Wanted`] and of what a look reads
//! (`interface::Present`, `look`), a variant of [`interface::Fact`], an arm in `missing`, and one in
//! `Keeper::set_up`; the tests of `interface` and the chaos test then cover it. The daemon may write no
//! file of `/proc/sys`: a setting without netlink is a request to the [`broker`].
//!
//! Never here: what must hold (weft-desired), networks (weft-networks), sessions (weft-core), system calls
//! (weft-os).

pub mod broker;
pub mod dns;
pub mod exit;
pub mod faults;
pub mod flows;
pub mod hosts;
pub mod interest;
pub mod interface;
pub mod managers;
pub mod names;
pub mod pace;
pub mod routes;
pub mod surroundings;
pub mod tun;
pub mod uplinks;
pub mod watch;
