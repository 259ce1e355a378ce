//! The table decides like a slow model of it, which forgets nothing and has no bounds.

use super::*;

/// How long a flow lasts without a packet, in ms: an open TCP connection.
const TCP_OPEN: u64 = 7_440_000;
/// One that is not open.
const TCP_OTHER: u64 = 240_000;
/// UDP with packets of both ends.
const UDP_OPEN: u64 = 300_000;
/// UDP with packets of one.
const UDP_OTHER: u64 = 60_000;

/// The flows as a list, evaluated anew for each packet.
struct Model {
    protocol: u8,
    allowed: u16,
    /// By ports.
    flows: BTreeMap<(u16, u16), Known>,
}

#[derive(Clone, Copy)]
struct Known {
    until: u64,
    by_peer: bool,
    answered: bool,
    over: bool,
    denied: bool,
}

impl Known {
    fn new(by_peer: bool) -> Self {
        Self {
            until: 0,
            by_peer,
            answered: false,
            over: false,
            denied: false,
        }
    }

    fn renewed(self, now: u64, protocol: u8) -> Self {
        let idle = match (protocol == TCP, self.denied || self.answered) {
            (true, _) if self.denied => TCP_OPEN,
            (true, true) if !self.over => TCP_OPEN,
            (true, _) => TCP_OTHER,
            (false, true) => UDP_OPEN,
            (false, false) => UDP_OTHER,
        };
        Self {
            until: now + idle,
            ..self
        }
    }
}

impl Model {
    fn is_over(&self, flags: u8) -> bool {
        self.protocol == TCP && flags & RST != 0
    }

    fn sent(&mut self, now: u64, ports: (u16, u16), flags: u8) {
        // Of a connection of the peer, this host sends no packet that begins one.
        let goes_on = |known: &Known| known.by_peer && self.protocol == TCP && flags & (SYN | ACK) != SYN;
        let known = self.flows.get(&ports).copied();
        let known = known.filter(|known| now <= known.until || goes_on(known));
        let mut flow = known.unwrap_or(Known::new(false));
        if !flow.denied {
            flow.answered |= flow.by_peer;
            flow.over |= self.is_over(flags);
        }
        self.flows.insert(ports, flow.renewed(now, self.protocol));
    }

    fn receives(&mut self, now: u64, ports: (u16, u16), flags: u8) -> bool {
        let allowed = self.allowed == ports.0;
        let known = self.flows.get(&ports).copied().filter(|known| now <= known.until);
        let mut flow = known.unwrap_or(Known::new(true));
        if flow.by_peer && !allowed {
            // What was never let in leaves no trace.
            if known.is_some_and(|known| !known.denied) {
                flow.denied = true;
                self.flows.insert(ports, flow.renewed(now, self.protocol));
            }
            return false;
        }
        flow.denied = false;
        flow.answered |= !flow.by_peer;
        flow.over |= self.is_over(flags);
        self.flows.insert(ports, flow.renewed(now, self.protocol));
        true
    }
}

/// Short pauses, and those that end flows.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0_u64..5_000,
        3 => 0_u64..400_000,
        1 => prop::sample::select(vec![UDP_OTHER, TCP_OTHER, UDP_OPEN, TCP_OPEN])
            .prop_flat_map(|idle| idle - 1_500..idle + 1_500),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    /// Whatever came before, a packet passes if and only if a slow model without memory and table
    /// bounds lets it pass.
    #[test]
    fn lanes_decide_like_a_slow_model(
        protocol in prop::sample::select(vec![TCP, UDP]),
        steps in prop::collection::vec(
            (pause(), 0..5_u8, 0..2_u16, 0..2_u16, prop::sample::select(vec![SYN, ACK, ACK, RST])),
            1..80,
        ),
    ) {
        let of = |port| serving(protocol, &[port]);
        let mut node = Node::with(of(1));
        let mut model = Model { protocol, allowed: 1, flows: BTreeMap::new() };
        let mut now = 0;
        for (pause, kind, local, remote, flags) in steps {
            // The memory of a lane lasts a second from the last look into the table, not from the last packet.
            now += pause + 1_000;
            match kind {
                0 => {
                    node.change_to(of(local));
                    model.allowed = local;
                }
                1 | 2 => {
                    node.send(now, &from_me(protocol, (local, remote), flags));
                    model.sent(now, (local, remote), flags);
                }
                _ => {
                    let passed = node.receive(now, &to_me(protocol, (remote, local), flags)).is_ok();
                    prop_assert_eq!(passed, model.receives(now, (local, remote), flags));
                }
            }
        }
    }
}
