//! Compares the figures in docs/protocol.md and docs/protocol/ with the code: constants, defaults,
//! lengths, types, counters.

use std::fs;
use std::path::{Path, PathBuf};

use weft_core::{Config, NodeCounters};
use weft_packet::{Counters, IPV6_OVERHEAD};
use weft_wire::link::{self, Disconnect, LinkMessageType, SessionDatagram};
use weft_wire::session::{self, DataPorts, SessionMessageType, TraversalType};
use weft_wire::shim::ShimHeader;
use weft_wire::signal::{CoordsRequired, MtuExceeded, SignalType};
use weft_wire::{fast, filter, fmp, fsp, mmp, tree};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A numeric constant of the sources.
struct Constant {
    /// File and directory names of its module, without `.rs`.
    modules: Vec<String>,
    name: String,
    value: u64,
    /// A byte of messages, and no timer or limit: it is written in hexadecimal.
    is_byte: bool,
}

fn constants() -> Vec<Constant> {
    let mut found = Vec::new();
    for file in files(Path::new(CRATES), "rs").filter(|file| file.iter().any(|part| part == "src")) {
        // The directory of the checkout may have the name of a module.
        let within = file.strip_prefix(CRATES).unwrap();
        let modules = within.iter().map(|part| part.to_string_lossy().replace(".rs", ""));
        let modules: Vec<String> = modules.collect();
        for line in fs::read_to_string(&file).unwrap().lines() {
            let declaration = line
                .split_once("const ")
                .filter(|(before, _)| before.trim_start() == *before);
            let Some((name, value)) = declaration.and_then(|(_, rest)| rest.split_once(" = ")) else {
                continue;
            };
            let name = name.split_once(':').map_or(name, |(name, _)| name);
            let is_byte = value.starts_with("0x");
            let literal = Some(value.trim_end_matches(';')).filter(|value| !value.contains(' '));
            if let Some(value) = literal.and_then(number) {
                found.push(Constant {
                    modules: modules.clone(),
                    name: name.to_owned(),
                    value,
                    is_byte,
                });
            }
        }
    }
    found
}

fn files(under: &Path, extension: &'static str) -> impl Iterator<Item = PathBuf> + use<> {
    let mut found = Vec::new();
    let mut open = vec![under.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found.into_iter()
}

fn pages() -> String {
    let pages = files(&Path::new(DOCS).join("protocol"), "md").chain([Path::new(DOCS).join("protocol.md")]);
    pages.map(|page| fs::read_to_string(page).unwrap()).collect()
}

/// The table rows whose first cell is one piece of code: that code, and the other cells.
fn rows(pages: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    pages.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split('|').map(str::trim);
        let code = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((code, cells.collect()))
    })
}

/// Parses a figure of a table or of the code: `1,280 bytes` and `1_280` are 1280, `0x10` is 16.
fn number(text: &str) -> Option<u64> {
    let figure = text.split(' ').next()?.replace([',', '_'], "");
    match figure.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => figure.parse().ok(),
    }
}

#[test]
fn every_named_constant_has_the_value_of_the_code() {
    let (pages, constants) = (pages(), constants());
    let mut checked = 0;
    for (code, cells) in rows(&pages) {
        let Some((module, name)) = code.split_once("::") else {
            continue;
        };
        if name.chars().any(|c| c.is_lowercase() || c == ':') {
            continue;
        }
        // A file goes before a directory of the same name.
        let named = constants.iter().filter(|c| c.name == name);
        let depth = |c: &&Constant| c.modules.iter().rev().position(|m| m == module);
        let constant = named
            .filter(|c| depth(c).is_some())
            .min_by_key(depth)
            .unwrap_or_else(|| panic!("{code} is not in the code"));
        assert_eq!(number(cells[0]), Some(constant.value), "{code}");
        checked += 1;
    }
    assert!(checked >= 30, "{checked} rows");
}

#[test]
fn no_timer_or_limit_of_the_state_machines_is_missing() {
    let pages = pages();
    let named: Vec<&str> = rows(&pages).map(|(code, _)| code).collect();
    for module in ["link", "session", "agreement", "lane", "inbound", "gate"] {
        for constant in constants() {
            let ours = |part: &str| matches!(part, "core" | "packet" | "contract");
            let here = constant.modules.iter().any(|m| m == module) && constant.modules.iter().any(|m| ours(m));
            // The unit that a token bucket counts in.
            if here && constant.name != "TOKEN" && !constant.is_byte && !constant.modules.contains(&"tests".to_owned())
            {
                let of = |m: &String| format!("{m}::{}", constant.name);
                let listed = constant.modules.iter().any(|m| named.contains(&&*of(m)));
                assert!(listed, "{module}::{} is in no table", constant.name);
            }
        }
    }
}

#[test]
fn the_defaults_are_those_of_the_core() {
    let Config {
        heartbeat,
        link_dead,
        rekey,
        session_idle,
        mtu,
        ..
    } = Config::default();
    let defaults = [
        ("Config::heartbeat", heartbeat),
        ("Config::link_dead", link_dead),
        ("Config::rekey", rekey),
        ("Config::session_idle", session_idle),
        ("Config::mtu", mtu.into()),
    ];
    let pages = pages();
    for (name, value) in defaults {
        let row = rows(&pages).find(|(code, _)| *code == name);
        assert_eq!(row.and_then(|(_, cells)| number(cells[0])), Some(value), "{name}");
    }
}

#[test]
fn lengths_are_those_of_the_wire_crate() {
    let link = mmp::ReportFraming::Link;
    let lengths = [
        ("fmp::Msg1", fmp::Msg1::LEN),
        ("fmp::Msg2", fmp::Msg2::LEN),
        ("fmp::CommonPrefix", fmp::CommonPrefix::LEN),
        ("fmp::EstablishedHeader", fmp::EstablishedHeader::LEN),
        ("fmp::InnerHeader", fmp::InnerHeader::LEN),
        ("link::SessionDatagram", SessionDatagram::HEADER_LEN),
        ("link::Disconnect", Disconnect::LEN),
        ("fsp::EncryptedHeader", fsp::EncryptedHeader::LEN),
        ("fsp::FspInner", fsp::FspInner::LEN),
        ("session::DataPorts", DataPorts::LEN),
        ("shim::ShimHeader", ShimHeader::LEN),
        ("mmp::SenderReport", mmp::SenderReport::wire_len(link)),
        ("mmp::ReceiverReport", mmp::ReceiverReport::wire_len(link)),
        ("tree::TreeAnnounce", tree::TreeAnnounce::MIN_LEN),
        ("filter::FilterAnnounce", filter::FilterAnnounce::LEN),
        ("signal::CoordsRequired", CoordsRequired::LEN),
        ("signal::MtuExceeded", MtuExceeded::LEN),
        ("IPV6_OVERHEAD", IPV6_OVERHEAD),
    ];
    let pages = pages();
    for (name, len) in lengths {
        let row = rows(&pages).find(|(code, _)| *code == name);
        assert_eq!(row.and_then(|(_, cells)| number(cells[0])), Some(len as u64), "{name}");
    }
}

#[test]
fn message_types_have_their_names() {
    let pages = pages();
    let (mut links, mut sessions) = (0, 0);
    for (code, cells) in rows(&pages) {
        let Some(byte) = code.strip_prefix("0x").and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
            continue;
        };
        let name = match cells[0] {
            "link" if byte == link::PROBE => Some("Probe".to_owned()),
            "link" if byte == link::PROBE_ANSWER => Some("ProbeAnswer".to_owned()),
            "link" if byte == link::KEY_IN_TWO => Some("KeyInTwo".to_owned()),
            "link" if byte == link::OBSERVED => Some("Observed".to_owned()),
            "link" if byte == link::SIGHTING_REQUEST => Some("SightingRequest".to_owned()),
            "link" if byte == link::SIGHTING => Some("Sighting".to_owned()),
            "link" if byte == link::HOP_CAPABILITIES => Some("HopCapabilities".to_owned()),
            "link" if byte == link::HOP_CAPABILITIES_ACK => Some("HopCapabilitiesAck".to_owned()),
            "link" if byte == link::BIND => Some("Bind".to_owned()),
            "link" if byte == link::BOUND => Some("Bound".to_owned()),
            "link" if byte == link::UNBIND => Some("Unbind".to_owned()),
            "link" if byte == link::HOPS_REQUEST => Some("HopsRequest".to_owned()),
            "link" if byte == link::HOP => Some("Hop".to_owned()),
            "link" => LinkMessageType::from_byte(byte).map(|t| format!("{t:?}")),
            "session" if byte == session::ALIVE => Some("Alive".to_owned()),
            "session" if byte == session::WHOLE_PACKET => Some("WholePacket".to_owned()),
            "session" if byte == session::RELAY_PROBE => Some("RelayProbe".to_owned()),
            "session" if byte == session::RELAY_PROBE_ANSWER => Some("RelayProbeAnswer".to_owned()),
            "session" if byte == fast::CAPABILITIES => Some("Capabilities".to_owned()),
            "session" if byte == fast::CAPABILITIES_ACK => Some("CapabilitiesAck".to_owned()),
            "session" => SessionMessageType::from_byte(byte)
                .map(|t| format!("{t:?}"))
                .or(TraversalType::from_byte(byte).map(|t| format!("{t:?}")))
                .or(SignalType::from_byte(byte).map(|t| format!("{t:?}"))),
            _ => continue,
        };
        assert_eq!(name.as_deref(), Some(cells[1]), "{code}");
        (links, sessions) = (
            links + u32::from(cells[0] == "link"),
            sessions + u32::from(cells[0] == "session"),
        );
    }
    let defined = |of: fn(u8) -> bool| (0..=u8::MAX).filter(|byte| of(*byte)).count() as u32;
    assert_eq!(links, 13 + defined(|b| LinkMessageType::from_byte(b).is_some()));
    assert_eq!(
        sessions,
        6 + defined(|b| SessionMessageType::from_byte(b).is_some()
            || TraversalType::from_byte(b).is_some()
            || SignalType::from_byte(b).is_some())
    );
}

#[test]
fn every_counter_is_explained() {
    let pages = pages();
    let (lane, node) = (Counters::default(), NodeCounters::default());
    for (name, _) in lane.named().chain(node.named()) {
        assert!(pages.contains(&format!("`{name}`")), "{name}");
    }
}
