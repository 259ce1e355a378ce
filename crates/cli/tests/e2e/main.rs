//! The real binary on hosts of its own: end-to-end tests, in one program so that those that wait
//! run beside each other.
//!
//! - `alone`: tests that measure, or that load the processors; they run one at a time
//! - `beside`: tests that mostly wait; they run beside each other
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

#[path = "../common/mod.rs"]
mod common;

mod alone {
    mod bench;
    mod crowd;
    mod flood;
    mod idle;
    mod lanes;
    mod lanes_refused;
    mod names;
    mod path_size;
    pub(crate) mod perf;
    pub(crate) mod perf_stages;
    mod perf_verdicts;
    mod roam;
    mod status;
    mod tcp;
    mod trace;
    mod under_attack;
}

mod beside {
    mod administrators;
    mod chaos;
    mod commands;
    mod configure;
    mod detour;
    mod docker;
    mod documents;
    mod errors;
    mod exit;
    mod exit_boots;
    mod exit_capture;
    mod exit_containers;
    mod exit_flows;
    mod exit_host;
    mod exit_inbound;
    mod exit_names;
    mod exit_senders;
    mod exit_strict;
    mod fast;
    mod faults;
    mod first_steps;
    pub(crate) mod homes;
    mod hops;
    mod host_names;
    mod internet;
    mod invite;
    pub(crate) mod join;
    mod join_in_vain;
    mod join_nat;
    mod keepalives;
    mod kept_facts;
    mod kept_files;
    mod known_flows;
    mod lab;
    mod lab_ends;
    mod lan;
    mod liar;
    mod lights;
    mod local_ends;
    mod local_users;
    mod many_routes;
    mod meet;
    mod member_routes;
    mod mtu;
    pub(crate) mod names;
    mod nat;
    mod network_manager;
    mod networkd;
    mod no_dead_ends;
    mod nostr;
    mod nostr_tls;
    mod nvpn;
    mod observe;
    mod one_command;
    mod one_lan;
    mod perf;
    mod port_mapping;
    mod presences;
    mod reach;
    mod references;
    mod rekey;
    mod relay;
    mod relayed_fast;
    mod relays;
    mod removed;
    mod requests;
    mod resolv_conf;
    mod resolved;
    mod restart;
    mod returned;
    pub(crate) mod rights;
    mod routes;
    mod rules;
    mod secrets;
    pub(crate) mod service;
    mod session_signals;
    mod states;
    pub(crate) mod stun;
    mod transfer;
    mod transfer_faults;
    mod transfer_grants;
    mod transfer_limits;
    mod transfer_memory;
    mod transfer_services;
    mod transfer_shares;
    mod two_networks;
    mod two_paths;
    mod under_way;
    mod under_way_lan;
    mod unsaved;
    mod uplinks;
    mod upstream;
    mod wireguard;
}
