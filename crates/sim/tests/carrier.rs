//! What a relay requires of the nodes whose messages it forwards.

use weft_contract::{Command, LinkId, LinkReport, Report, SendCommand};
use weft_core::{Config, Output};
use weft_noise::xk::MSG1_LEN;
use weft_sim::{HostId, World};
use weft_wire::link::SessionDatagram;
use weft_wire::session::SessionSetup;
use weft_wire::signal::{CoordsRequired, Signal};
use weft_wire::{Coords, NodeAddr};

/// A row of three, the root first. The middle one has dialled the root, and so that link has the
/// smallest number.
struct Row {
    world: World,
    hosts: Vec<HostId>,
    sent: u64,
}

impl Row {
    fn new(seed: u64) -> Self {
        let config = Config {
            mesh: true,
            ..Config::default()
        };
        let mut world = World::new(seed);
        let mut hosts: Vec<HostId> = (0..3).map(|_| world.add_host(config)).collect();
        hosts.sort_by_key(|host| world.host(*host).node_addr());
        for pair in hosts.windows(2) {
            world.add_peer(pair[1], pair[0], true);
        }
        world.run(10_000);
        Self { world, hosts, sent: 0 }
    }

    fn addr(&self, number: usize) -> NodeAddr {
        self.world.host(self.hosts[number]).node_addr()
    }

    /// The root passes a message of `src` for the last one to the middle one. Returns whether it is
    /// forwarded, and what `src` is told.
    fn carry(&mut self, src: NodeAddr, payload: &[u8]) -> (bool, Vec<CoordsRequired>) {
        let from = LinkId(1);
        let datagram = SessionDatagram {
            ttl: 10,
            path_mtu: 1_280,
            src,
            dest: self.addr(2),
            payload,
        };
        let mut body = vec![0; SessionDatagram::HEADER_LEN + payload.len()];
        datagram.emit(&mut body).unwrap();
        // Error signals about one destination are at least 100 ms apart.
        self.sent += 1_000;
        let now = self.world.now() + self.sent;
        let node = &mut self.world.host_mut(self.hosts[1]).node;
        node.handle_report(now, Report::Link(from, LinkReport::Transit { body }));
        let (mut passed, mut signals) = (false, Vec::new());
        while let Some(output) = node.poll_output() {
            let Output::Lane(Command::Send(SendCommand::OnLink { link, body, .. })) = output else {
                continue;
            };
            let Ok(datagram) = SessionDatagram::parse(&body) else {
                continue;
            };
            if datagram.src == src {
                passed |= link != from && datagram.payload == payload;
            } else if let Ok(Signal::CoordsRequired(signal)) = Signal::parse(datagram.payload) {
                assert_eq!((link, datagram.dest), (from, src));
                signals.push(signal);
            }
        }
        (passed, signals)
    }

    /// A SessionSetup that announces the coordinates of its source.
    fn tell(&mut self, path: &[NodeAddr]) {
        let dest = [self.addr(2)];
        let setup = SessionSetup {
            flags: 0,
            src: Coords::new(path),
            dest: Coords::new(&dest),
            noise: &[7; MSG1_LEN],
        };
        let mut payload = vec![0; setup.wire_len()];
        setup.emit(&mut payload).unwrap();
        assert!(self.carry(path[0], &payload).0);
    }
}

/// An established message, opaque to relays.
const DATA: [u8; 60] = [0; 60];

/// A FIPS peer answers by coordinates alone; it neither asks for lost ones nor reports their loss.
#[test]
fn a_source_whose_place_is_not_known_is_asked_for_it() {
    let mut row = Row::new(1);
    let (stranger, root) = (NodeAddr::new([0xee; 16]), row.addr(0));
    let asked = CoordsRequired {
        dest: row.addr(2),
        reporter: row.addr(1),
    };
    assert_eq!(row.carry(stranger, &DATA), (true, vec![asked]));
    row.tell(&[stranger, root]);
    assert_eq!(row.carry(stranger, &DATA), (true, vec![]));
}

/// Coordinates of a single address are complete for the root, and useless for any other node: it
/// has not joined yet.
#[test]
fn the_root_alone_is_where_it_says() {
    let mut row = Row::new(2);
    let (stranger, root) = (NodeAddr::new([0xee; 16]), row.addr(0));
    for (src, asked) in [(root, 0), (stranger, 1)] {
        row.tell(&[src]);
        let (passed, signals) = row.carry(src, &DATA);
        assert!(passed);
        assert_eq!(signals.len(), asked, "{src:?}");
    }
}
