//! Interfaces: querying, changing, creating, deleting.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind,
    InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};

use super::{Netlink, NetlinkError};
use crate::syscall;

/// `Running` is the operational state of RFC 2863, `LowerUp` the carrier; the first follows the second.
const USABLE: LinkFlags = LinkFlags::Up.union(LinkFlags::Running).union(LinkFlags::LowerUp);

/// The properties of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Length of the transmit queue, in packets.
    pub tx_queue_len: u32,
    /// Whether an administrator has set it up.
    pub up: bool,
    /// Whether packets pass: it is up, has a carrier, and the kernel has attached its queues. For a
    /// veth that happens in the background, after both ends are up.
    pub usable: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// The index of the bridge it belongs to.
    pub controller: Option<u32>,
    /// The index of the other end of a veth pair, if it is in the same namespace.
    pub peer: Option<u32>,
    /// The driver of a virtual interface, as `ip -details link` shows it: `veth`, `wireguard`. Without
    /// one, it is an interface of hardware.
    pub kind: Option<String>,
    /// The number of its group (`ip link set group`); 0 by default. Rules for routes can leave out a group.
    pub group: u32,
}

/// One end of a veth pair.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// The name of the interface.
    pub name: &'a str,
    /// The namespace in which it is created, by default that of the [`Netlink`].
    pub namespace: Option<BorrowedFd<'a>>,
}

impl Netlink {
    /// Returns the interface called `name`.
    ///
    /// # Errors
    /// [`NetlinkError::NotFound`] if there is none.
    pub fn interface(&mut self, name: &str) -> Result<Interface, NetlinkError> {
        const WHAT: &str = "look up the interface";
        let mut link = LinkMessage::default();
        link.attributes.push(name_attribute(name)?);
        self.fetch(WHAT, Message::GetLink(link), interface)?
            .ok_or(NetlinkError::NotFound { what: WHAT })
    }

    /// Returns the interface with this index.
    ///
    /// # Errors
    /// [`NetlinkError::NotFound`] if there is none.
    pub fn interface_at(&mut self, index: u32) -> Result<Interface, NetlinkError> {
        const WHAT: &str = "look up the interface";
        self.fetch(WHAT, Message::GetLink(link_message(index)), interface)?
            .ok_or(NetlinkError::NotFound { what: WHAT })
    }

    /// All interfaces.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, NetlinkError> {
        let all = Message::GetLink(LinkMessage::default());
        self.dump("list the interfaces", all, interface)
    }

    /// Sets the largest IP packet in bytes. Below 1,280 Linux disables IPv6 on the interface.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Refused` if the interface cannot have that MTU.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        self.set("set the MTU", index, LinkAttribute::Mtu(mtu))
    }

    /// Sets the number of the group of the interface. Rules for routes can leave out a group.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn set_group(&mut self, index: u32, group: u32) -> Result<(), NetlinkError> {
        self.set("set the group", index, LinkAttribute::Group(group))
    }

    /// Sets the length of the transmit queue, in packets.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn set_tx_queue_len(&mut self, index: u32, packets: u32) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::TxQueueLen(packets);
        self.set("set the transmit queue length", index, attribute)
    }

    /// Limits the number of segments of a super-packet that reaches the device; 1 makes the kernel
    /// split each beforehand, as for a network card without segmentation offload (L24b).
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn set_gso_max_segments(&mut self, index: u32, segments: u32) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::GsoMaxSegs(segments);
        self.set("limit the segments", index, attribute)
    }

    /// Disables the IPv6 link-local address that the interface would get when it comes up.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Refused` if the interface has no IPv6.
    pub fn disable_link_local(&mut self, index: u32) -> Result<(), NetlinkError> {
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let attribute = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]);
        self.set("turn off link-local addresses", index, attribute)
    }

    /// Makes the interface a port of the bridge with the index `bridge`; `None` removes it from its
    /// bridge.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn set_bridge(&mut self, index: u32, bridge: Option<u32>) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::Controller(bridge.unwrap_or(0));
        self.set("change the bridge", index, attribute)
    }

    /// Isolates the interface, a port of a bridge: isolated ports exchange nothing with each other.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Refused` if it is not a port of a bridge.
    pub fn set_isolated(&mut self, index: u32, isolated: bool) -> Result<(), NetlinkError> {
        let mut link = link_message(index);
        let data = InfoPortData::BridgePort(vec![InfoBridgePort::Isolated(isolated)]);
        let info = vec![LinkInfo::PortKind(InfoPortKind::Bridge), LinkInfo::PortData(data)];
        link.attributes.push(LinkAttribute::LinkInfo(info));
        self.change("isolate the port", Message::NewLink(link), 0)
    }

    /// Moves the interface to another network namespace, where it is down and without addresses.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Exists` if that namespace has an interface of this name.
    pub fn move_to(&mut self, index: u32, namespace: BorrowedFd<'_>) -> Result<(), NetlinkError> {
        let attribute = LinkAttribute::NetNsFd(namespace.as_raw_fd());
        self.set("move the interface", index, attribute)
    }

    /// Brings the interface up.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn set_up(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_flags("bring the interface up", index, LinkFlags::Up)
    }

    /// Waits, up to twenty seconds, until the interface is [usable](Interface::usable).
    ///
    /// # Errors
    /// A [`NetlinkError`]; `NotUsable` if it does not happen.
    pub fn wait_until_usable(&mut self, name: &str) -> Result<(), NetlinkError> {
        let usable = self.poll(|netlink| Ok(netlink.interface(name)?.usable))?;
        usable
            .then_some(())
            .ok_or_else(|| NetlinkError::NotUsable(name.to_owned()))
    }

    /// Sets the interface down; its IPv6 addresses and all its routes are removed.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn set_down(&mut self, index: u32) -> Result<(), NetlinkError> {
        self.set_flags("take the interface down", index, LinkFlags::empty())
    }

    /// Deletes the interface, and with one end of a veth pair also the other.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Refused` for interfaces that belong to hardware.
    pub fn delete_interface(&mut self, index: u32) -> Result<(), NetlinkError> {
        let link = link_message(index);
        self.change("delete the interface", Message::DelLink(link), 0)
    }

    /// Creates a veth pair, both ends down.
    ///
    /// # Errors
    /// A [`NetlinkError`]; either both ends are created or none.
    pub fn create_veth(&mut self, one: VethEnd<'_>, other: VethEnd<'_>) -> Result<(), NetlinkError> {
        let mut link = veth_end(one)?;
        link.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(veth_end(other)?))),
        ]));
        self.create("make a virtual cable", link)
    }

    /// Creates a bridge, down, without ports.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn create_bridge(&mut self, name: &str) -> Result<(), NetlinkError> {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            name_attribute(name)?,
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        self.create("make a bridge", link)
    }

    fn create(&mut self, what: &'static str, link: LinkMessage) -> Result<(), NetlinkError> {
        self.change(what, Message::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    fn set(&mut self, what: &'static str, index: u32, attribute: LinkAttribute) -> Result<(), NetlinkError> {
        let mut link = link_message(index);
        link.attributes.push(attribute);
        self.change(what, Message::SetLink(link), 0)
    }

    fn set_flags(&mut self, what: &'static str, index: u32, flags: LinkFlags) -> Result<(), NetlinkError> {
        let mut link = link_message(index);
        link.header.flags = flags;
        link.header.change_mask = LinkFlags::Up;
        self.change(what, Message::SetLink(link), 0)
    }
}

fn link_message(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}

fn name_attribute(name: &str) -> Result<LinkAttribute, NetlinkError> {
    if syscall::valid_interface_name(name) {
        Ok(LinkAttribute::IfName(name.to_owned()))
    } else {
        Err(NetlinkError::InvalidName(name.to_owned()))
    }
}

fn veth_end(end: VethEnd<'_>) -> Result<LinkMessage, NetlinkError> {
    let mut link = LinkMessage::default();
    link.attributes.push(name_attribute(end.name)?);
    if let Some(namespace) = end.namespace {
        let attribute = LinkAttribute::NetNsFd(namespace.as_raw_fd());
        link.attributes.push(attribute);
    }
    Ok(link)
}

pub(super) fn interface(message: Message) -> Option<Interface> {
    let Message::NewLink(link) = message else {
        return None;
    };
    let mut interface = Interface {
        index: link.header.index,
        name: String::new(),
        mtu: 0,
        tx_queue_len: 0,
        up: link.header.flags.contains(LinkFlags::Up),
        usable: link.header.flags.contains(USABLE),
        loopback: link.header.flags.contains(LinkFlags::Loopback),
        controller: None,
        peer: None,
        kind: None,
        group: 0,
    };
    let mut is_elsewhere = false;
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::Link(index) => interface.peer = Some(index),
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
            LinkAttribute::TxQueueLen(len) => interface.tx_queue_len = len,
            LinkAttribute::Group(group) => interface.group = group,
            LinkAttribute::Controller(index) => interface.controller = Some(index),
            LinkAttribute::LinkInfo(info) => {
                interface.kind = info.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            // Packets sent before the carrier is detected are dropped by this queue.
            LinkAttribute::Qdisc(name) => interface.usable &= name != "noop",
            _ => {}
        }
    }
    let is_pair = interface.kind.as_deref() == Some("veth") && !is_elsewhere;
    interface.peer.take_if(|_| !is_pair);
    Some(interface)
}
