//! The frames around the translation: a router with two Ethernet ports that sends and answers ARP
//! queries (RFC 826) and forwards IPv4 only.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use weft_os::tap::ETHERNET_HEADER_LEN;

use super::translate::{Side, Translator};

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
/// ARP for Ethernet and IPv4, with the lengths of their addresses.
const ARP_START: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_LEN: usize = 28;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// Milliseconds after which a neighbour is queried again while its entry is still used.
const FRESH: u64 = 10_000;
/// Milliseconds after which an entry is no longer used.
const STALE: u64 = 30_000;
/// Milliseconds between two queries for the same neighbour.
const RETRY: u64 = 1000;
/// Packets that wait for a neighbour; above it the oldest are dropped.
const WAITING: usize = 64;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// The broadcast address.
const BROADCAST: Mac = [0xff; 6];

/// One port of the router.
#[derive(Debug)]
pub struct RouterPort {
    mac: Mac,
    address: Ipv4Addr,
    prefix_len: u8,
    /// The next hop of packets to networks other than that of this port.
    gateway: Option<Ipv4Addr>,
    neighbours: BTreeMap<Ipv4Addr, Neighbour>,
}

#[derive(Debug, Default)]
struct Neighbour {
    mac: Option<Mac>,
    heard: u64,
    asked: Option<u64>,
    waiting: VecDeque<Vec<u8>>,
}

impl RouterPort {
    /// A port without neighbour entries.
    #[must_use]
    pub fn new(mac: Mac, address: Ipv4Addr, prefix_len: u8, gateway: Option<Ipv4Addr>) -> Self {
        Self {
            mac,
            address,
            prefix_len,
            gateway,
            neighbours: BTreeMap::new(),
        }
    }

    fn next_hop(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_len)).unwrap_or(0);
        let near = (u32::from(self.address) ^ u32::from(destination)) & mask == 0;
        if near { Some(destination) } else { self.gateway }
    }

    /// Processes an ARP message about its sender. Returns the answer, if it queries this port.
    fn arp(&mut self, now: u64, message: &[u8]) -> Vec<Vec<u8>> {
        let Some(arp) = message
            .first_chunk::<ARP_LEN>()
            .filter(|arp| arp.starts_with(&ARP_START))
        else {
            return Vec::new();
        };
        let (operation, sender) = (u16::from_be_bytes([arp[6], arp[7]]), mac_at(arp, 8));
        let (sender_ip, target_ip) = (ip_at(arp, 14), ip_at(arp, 24));
        let mut frames = Vec::new();
        // A host that queries this port will receive from it; for others only existing entries are
        // renewed (RFC 826).
        let for_us = target_ip == self.address;
        if !sender_ip.is_unspecified() && (for_us || self.neighbours.contains_key(&sender_ip)) {
            let neighbour = self.neighbours.entry(sender_ip).or_default();
            neighbour.mac = Some(sender);
            neighbour.heard = now;
            neighbour.asked = None;
            let waiting = neighbour.waiting.drain(..);
            frames.extend(waiting.map(|packet| frame(sender, self.mac, IPV4, &packet)));
        }
        if for_us && operation == REQUEST {
            frames.push(self.arp_message(REPLY, sender, sender_ip));
        }
        frames
    }

    /// Returns the frames that send `packet`: the packet if the neighbour is known, a query if not.
    fn send(&mut self, now: u64, destination: Ipv4Addr, packet: &[u8]) -> Vec<Vec<u8>> {
        let Some(hop) = self.next_hop(destination) else {
            return Vec::new();
        };
        let own = self.mac;
        let neighbour = self.neighbours.entry(hop).or_default();
        let age = now.saturating_sub(neighbour.heard);
        let mut frames = Vec::new();
        match neighbour.mac.filter(|_| age < STALE) {
            Some(mac) => frames.push(frame(mac, own, IPV4, packet)),
            None => {
                neighbour.waiting.push_back(packet.to_vec());
                if neighbour.waiting.len() > WAITING {
                    neighbour.waiting.pop_front();
                }
            }
        }
        let may_ask = neighbour.asked.is_none_or(|at| now.saturating_sub(at) >= RETRY);
        if (neighbour.mac.is_none() || age >= FRESH) && may_ask {
            neighbour.asked = Some(now);
            frames.push(self.arp_message(REQUEST, BROADCAST, hop));
        }
        frames
    }

    /// Repeats queries for neighbours that packets wait for.
    fn ask_again(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut due = Vec::new();
        for (hop, neighbour) in &mut self.neighbours {
            if !neighbour.waiting.is_empty() && neighbour.asked.is_some_and(|at| now.saturating_sub(at) >= RETRY) {
                neighbour.asked = Some(now);
                due.push(*hop);
            }
        }
        due.into_iter()
            .map(|hop| self.arp_message(REQUEST, BROADCAST, hop))
            .collect()
    }

    fn next_question(&self) -> Option<u64> {
        let waiting = self
            .neighbours
            .values()
            .filter(|neighbour| !neighbour.waiting.is_empty());
        waiting.filter_map(|neighbour| Some(neighbour.asked? + RETRY)).min()
    }

    fn arp_message(&self, operation: u16, to: Mac, target: Ipv4Addr) -> Vec<u8> {
        let asked = if operation == REQUEST { [0; 6] } else { to };
        let mut message = Vec::with_capacity(ARP_LEN);
        message.extend_from_slice(&ARP_START);
        message.extend_from_slice(&operation.to_be_bytes());
        message.extend_from_slice(&self.mac);
        message.extend_from_slice(&self.address.octets());
        message.extend_from_slice(&asked);
        message.extend_from_slice(&target.octets());
        frame(to, self.mac, ARP, &message)
    }
}

/// A router with translation. Pure: frames in, frames out, times in milliseconds.
#[derive(Debug)]
pub struct Router {
    translator: Translator,
    inside: RouterPort,
    outside: RouterPort,
}

impl Router {
    /// A router whose outer address is that of the port `outside`.
    #[must_use]
    pub fn new(translator: Translator, inside: RouterPort, outside: RouterPort) -> Self {
        Self {
            translator,
            inside,
            outside,
        }
    }

    /// The translation.
    pub fn translator(&mut self) -> &mut Translator {
        &mut self.translator
    }

    /// The address on a side.
    #[must_use]
    pub fn address(&self, side: Side) -> Ipv4Addr {
        match side {
            Side::Inside => self.inside.address,
            Side::Outside => self.outside.address,
        }
    }

    /// Restarts: mappings, neighbours and the packets that wait for them are gone. `outer` is the
    /// new outer address with its prefix length.
    pub fn reboot(&mut self, outer: Option<(Ipv4Addr, u8)>) {
        for port in [&mut self.inside, &mut self.outside] {
            port.neighbours.clear();
        }
        if let Some((address, prefix_len)) = outer {
            self.outside.address = address;
            self.outside.prefix_len = prefix_len;
        }
        self.translator.restart(self.outside.address);
    }

    /// Processes a frame from one side. Returns the frames to be sent, each with its side. The
    /// bytes of the frame are overwritten.
    pub fn handle_frame(&mut self, now: u64, from: Side, bytes: &mut [u8]) -> Vec<(Side, Vec<u8>)> {
        let port = self.port(from);
        let Some((header, payload)) = bytes.split_at_mut_checked(ETHERNET_HEADER_LEN) else {
            return Vec::new();
        };
        let (to, kind) = (mac_at(header, 0), u16::from_be_bytes([header[12], header[13]]));
        if to != port.mac && to != BROADCAST {
            return Vec::new();
        }
        match kind {
            ARP => on(from, port.arp(now, payload)),
            // A router does not forward broadcasts.
            IPV4 if to != BROADCAST => self.forward(now, from, payload),
            _ => Vec::new(),
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: u64) -> Vec<(Side, Vec<u8>)> {
        let mut frames = on(Side::Inside, self.inside.ask_again(now));
        frames.extend(on(Side::Outside, self.outside.ask_again(now)));
        frames
    }

    /// When [`Router::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let times = [self.inside.next_question(), self.outside.next_question()];
        times.into_iter().flatten().min()
    }

    fn forward(&mut self, now: u64, from: Side, packet: &mut [u8]) -> Vec<(Side, Vec<u8>)> {
        // The hosts inside reach each other, and the NAT box itself, without translation.
        if from == Side::Inside && self.inside.next_hop(ip_at(packet, 16)) == Some(ip_at(packet, 16)) {
            return Vec::new();
        }
        let Ok((to, len)) = self.translator.translate(now, from, packet) else {
            return Vec::new();
        };
        let destination = ip_at(packet, 16);
        let packet = packet.get(..len).unwrap_or_default();
        on(to, self.port(to).send(now, destination, packet))
    }

    fn port(&mut self, side: Side) -> &mut RouterPort {
        match side {
            Side::Inside => &mut self.inside,
            Side::Outside => &mut self.outside,
        }
    }
}

fn on(side: Side, frames: Vec<Vec<u8>>) -> Vec<(Side, Vec<u8>)> {
    frames.into_iter().map(|frame| (side, frame)).collect()
}

fn frame(to: Mac, from: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET_HEADER_LEN + payload.len());
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&from);
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn mac_at(bytes: &[u8], at: usize) -> Mac {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<6>());
    found.copied().unwrap_or_default()
}

fn ip_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    found.map_or(Ipv4Addr::UNSPECIFIED, |&octets| octets.into())
}
