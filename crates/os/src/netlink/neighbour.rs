//! The kernel's neighbour table (ARP, neighbour discovery).

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};

use super::{Netlink, NetlinkError};

impl Netlink {
    /// Deletes the learnt neighbour entries of an interface, including unresolved ones: the next
    /// packet starts a resolution at once, instead of a second after the last request.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn flush_neighbours(&mut self, index: u32) -> Result<(), NetlinkError> {
        let all = Message::GetNeighbour(NeighbourMessage::default());
        let learnt = self.dump("list the neighbours", all, |message| {
            let Message::NewNeighbour(message) = message else {
                return None;
            };
            let fixed = [NeighbourState::Noarp, NeighbourState::Permanent].contains(&message.header.state);
            (message.header.ifindex == index && !fixed).then_some(message)
        })?;
        for mut neighbour in learnt {
            let address = |attribute: &NeighbourAttribute| matches!(attribute, NeighbourAttribute::Destination(_));
            neighbour.attributes.retain(address);
            match self.change("forget the neighbour", Message::DelNeighbour(neighbour), 0) {
                // The entry has expired by itself.
                Ok(()) | Err(NetlinkError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
