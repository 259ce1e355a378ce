//! Messages of sessions for services of this node: data behind other ports than that of IP packets.

use weft_contract::{Bucket, MAX_SERVICE, Rate, Report, SessionReport};
use weft_wire::session::DataPorts;

use crate::counters::DropReason;
use crate::tables::{SessionKey, Tables};

/// What the messages of one peer may cost the core: 4 MB a second.
const RATE: Rate = Rate {
    per_second: 4_000,
    burst: 512,
};

impl Tables {
    /// Returns the report to the core on a message for a service. The core has installed the keys of
    /// the session, and decides whether its messages are taken: those of guests are, although no IP
    /// packet of a guest passes.
    pub(crate) fn service_message(&mut self, now: u64, key: SessionKey, body: &[u8]) -> Result<Report, DropReason> {
        let (ports, bytes) = DataPorts::parse(body).map_err(|_| DropReason::Malformed)?;
        let session = self.sessions.get_mut(key).ok_or(DropReason::NoKeys)?;
        // A node of nvpn, which asks at other ports, waits for the report that the core sends.
        let asks = self.takes_whole && session.reads_whole;
        if !asks && !self.services.contains(&ports.dst) {
            return Err(DropReason::NoService);
        }
        if bytes.len() > MAX_SERVICE {
            return Err(DropReason::ControlTooLong);
        }
        let bucket = session.services.get_or_insert_with(|| Bucket::new(RATE, now));
        if bucket.take(RATE, now, 1) == 0 {
            return Err(DropReason::ServiceRate);
        }
        let bytes = bytes.to_vec();
        Ok(Report::Session(session.peer, SessionReport::Service { ports, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_contract::{HandshakeLimits, LaneConfig};
    use weft_wire::NodeAddr;

    use super::*;

    const PORT: u16 = 7_371;

    fn tables() -> Tables {
        let config = LaneConfig {
            me: NodeAddr::new([0; 16]),
            mtu: 1_280,
            probe: false,
            transit: false,
            handshakes: HandshakeLimits::default(),
        };
        let mut tables = Tables::new(config, Arc::default());
        tables.services = vec![PORT];
        tables
    }

    fn peer(tables: &mut Tables, number: u8) -> SessionKey {
        let key = tables.session_with(NodeAddr::new([number; 16]));
        tables.sessions.get_mut(key).unwrap().allowed = true;
        key
    }

    fn body(dst: u16, len: usize) -> Vec<u8> {
        let ports = DataPorts { src: PORT, dst };
        [&ports.to_bytes()[..], &vec![7; len]].concat()
    }

    #[test]
    fn messages_reach_services_that_are_there() {
        let mut tables = tables();
        let key = peer(&mut tables, 1);
        let report = tables.service_message(0, key, &body(PORT, MAX_SERVICE));
        assert!(matches!(
            report,
            Ok(Report::Session(_, SessionReport::Service { ports, bytes })) if ports.dst == PORT && bytes.len() == MAX_SERVICE
        ));
        let reason = |report: Result<Report, DropReason>| report.map(|_| ()).unwrap_err();
        let longer = tables.service_message(0, key, &body(PORT, MAX_SERVICE + 1));
        assert_eq!(reason(longer), DropReason::ControlTooLong);
        let other = tables.service_message(0, key, &body(PORT + 1, 1));
        assert_eq!(reason(other), DropReason::NoService);
        tables.takes_whole = true;
        let other = tables.service_message(0, key, &body(PORT + 1, 1));
        assert_eq!(reason(other), DropReason::NoService, "it has sent no whole packet");
        tables.sessions.get_mut(key).unwrap().reads_whole = true;
        assert!(tables.service_message(0, key, &body(PORT + 1, 1)).is_ok());
        let short = tables.service_message(0, key, &[1, 2, 3]);
        assert_eq!(reason(short), DropReason::Malformed);
        // A guest: no IP packet of it passes.
        tables.sessions.get_mut(key).unwrap().allowed = false;
        assert!(tables.service_message(0, key, &body(PORT, 1)).is_ok());
    }

    #[test]
    fn each_peer_has_a_rate_of_its_own() {
        let mut tables = tables();
        let (flooding, other) = (peer(&mut tables, 1), peer(&mut tables, 2));
        let passed = |tables: &mut Tables, now, key, count| {
            let all = (0..count).filter(|_| tables.service_message(now, key, &body(PORT, 10)).is_ok());
            all.count()
        };
        assert_eq!(passed(&mut tables, 1_000, flooding, 10_000), 512);
        assert_eq!(passed(&mut tables, 1_000, other, 100), 100);
        assert_eq!(passed(&mut tables, 1_100, flooding, 10_000), 400);
    }
}
