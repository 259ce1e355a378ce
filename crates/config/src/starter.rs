//! The configuration of a new node.

/// `#key = value` is a setting that is commented out, `# text` is a comment.
pub(super) const TEXT: &str = r#"# Configuration of a weft node. Lines that begin with # are comments; a setting that is commented
# out shows its default. To change it, remove the # before it and before the [table] above it, or add
# both at the end of the file, then run `weft reload`. `weft set` and `weft peer add` do both.

# Threads that move packets, 1 to 16. "auto" takes one for two processors, up to 8.
#lanes = "auto"
# While they move bulk data they take precedence over other programs (nice -10), if the system
# permits it.
#prefer_lanes = true

# One block for each peer. Write the other node's npub here, and this node's npub there.
# A peer without addresses is one that dials this node. An address may be a host name, as
# "home.example.org:2121".
#[[peer]]
#npub = "npub1..."
#name = "bob"
#addresses = ["192.0.2.2:2121", "[2001:db8::2]:2121"]
#require_fast = false
# Whether data to it goes through all uplinks of both hosts at once, each flow through one of them. It
# takes effect if both nodes have it.
#bond = false
# Subnets behind it, IPv4 and IPv6: packets to them go to the peer, and may come from it.
#routes = ["10.2.0.0/16", "2001:db8:2::/48"]

#[identity]
# The secret key's file, relative to the state directory.
#key_file = "identity.key"

#[udp]
# One socket for each entry.
#listen = ["0.0.0.0:2121", "[::]:2121"]
# The largest UDP payload sent, in bytes. "auto" probes direct paths between weft nodes up to 1472,
# and is 1280 on other paths.
#mtu = "auto"
# Seconds after a search until a path is probed again for a larger size.
#raise_s = 600
# The maximum number of datagrams sent in one call, 1 to 64. 1 disables UDP_SEGMENT. If the kernel
# or a driver refuses it, the node does without; `weft status` shows that.
#batch = 64
# Whether the kernel may coalesce received datagrams (UDP_GRO).
#gro = true

#[tun]
#name = "weft0"
# In bytes, at least 1280. "auto" follows from the largest UDP payload: 1470 unless [udp] mtu is set.
#mtu = "auto"
# Further addresses of the interface, as "10.1.0.1/24", and subnets behind this node to which peers
# may send, as "192.168.7.0/24".
#addresses = []
#routes = []
# Whether packets cross the interface unsplit and without checksums, if the kernel supports it.
# false: each read and write moves one packet.
#offload = true
# Whether this node offers its private networks to be their exit: members that choose it then send
# to all other addresses by it. An administrator approves that: `weft route approve NAME exit`.
#advertise_exit = false
# The member that is this node's exit, by its name or npub; "" is none.
#exit = ""
# Whether packets that cannot go by the exit are dropped. If not, they go without it while it fails.
#exit_strict = false
# Whether the subnets that this host is in are reached without the exit.
#exit_lan = false
# Whether connections that other hosts open to this one are answered, although the exit is strict.
#exit_inbound = false

#[link]
# A silent link is probed after the first time in seconds, and given up after the second.
#heartbeat_s = 10
#dead_after_s = 30

#[rekey]
# Age of keys, in seconds, at which links and sessions get new ones.
#interval_s = 120

#[session]
# A session without data is dropped after this many seconds.
#idle_s = 80

#[mesh]
# Whether this node reaches peers through other nodes, and other nodes through this one.
#enabled = true
# Whether this node forwards traffic of other nodes, which stays sealed end to end.
#transit = true
# Whether nodes that are not listed below may link with this one, to use it as a relay. IP packets
# pass between listed peers only.
#open = false
# Keys of nodes that may link although open = false, and of nodes that may not although open = true.
#allow = []
#deny = []

#[reach]
# Whether this node looks for direct paths to weft nodes that it reaches through others: it tells them
# its addresses, and sends probes to theirs, which open NATs.
#punch = true
# Addresses at which others see this node, if they are known: of a router that forwards a port to it, or
# of a NAT that keeps its port, as "11.0.0.1:2121".
#external = []
# STUN servers that are asked under which address they see this node, as "stun.example.org:3478", at
# most 8. They learn the address of this host. Without any, neighbours say it alone.
#stun = []
# Whether the gateway of this host's network is asked to map a UDP port to this node, by PCP, NAT-PMP or
# UPnP. Without one, two nodes behind certain routers reach each other through others only.
#port_mapping = true
# What this host's uplinks are used for beside the one that the system prefers, if it has several:
# "spare", they take over while that one fails; "fastest", the shortest round trip decides, also if
# their traffic costs more; "off", nothing.
#uplinks = "spare"

#[lan]
# Which nodes find this one in its LAN, by mDNS: "members" of its networks, which others cannot tell from
# other nodes; "everyone", which shows the key of this node, and makes nodes of FIPS and nvpn find it; or
# "off": nothing is sent, and no node is found.
#announce = "members"

#[nvpn]
# Whether devices with the VPN nvpn can be members of the networks of this node.
#enabled = true

#[nostr]
# Relays of Nostr through which this node and its peers find each other although they have no neighbour in
# common, at most 8, as "wss://relay.example". A relay sees the address and key of this node. Without
# relays, nothing is sent.
#relays = []
# Whether the public addresses of this node are published there, where each reader of the relay sees
# them. Peers find it without.
#advertise = false

#[rules]
# Rules for packets of peers to this node, before those of its networks: first those that deny, then
# those that allow. FROM is any, tag:NAME, tag:NETWORK/NAME or npub1..., as in
# local = ["deny from tag:guest to any", "allow from any to any tcp/22"]
#local = []

#[networks]
# Subnets behind this node that it offers to its private networks, as "192.168.7.0/24", at most 16. An
# administrator approves each: `weft route approve`.
#advertise_routes = []
# Whether approved routes of other members are used, and fixed addresses outside of 10.44.0.0/16. If not, these are
# not reached from here.
#accept_routes = false

#[dns]
# Whether queries for NAME.fips and npub1....fips are answered, over UDP and TCP, on this host only.
#enabled = true
#listen = ["127.0.0.1:5354", "[::1]:5354"]
# Whether the system's resolver sends such queries here: systemd-resolved if it runs, or else by
# resolv_conf. Answers for other names are not affected.
#register = true
# The file that is replaced while weft runs, if systemd-resolved does not: "auto" is /etc/resolv.conf,
# "off" none; or an absolute path.
#resolv_conf = "auto"

#[fast]
# Fast frames: between weft nodes each packet is sealed once, not twice, and weft nodes that forward
# it seal a few bytes. If this is off, or the peer or a node of the path is a FIPS node, packets go
# in FIPS frames.
#enabled = true
# Whether data is sent in fast frames or not at all: data that cannot be sent in one waits, and is
# dropped in the end. A peer's require_fast takes precedence for that peer.
#require = false
# "auto" uses the cipher that costs both ends least; "aes-256-gcm" or "chacha20-poly1305" offers only
# that one.
#suite = "auto"
# Number of frames after which a key is replaced by the next one.
#phase_frames = 8388608
# "full" seals the whole frame again at each hop, so that an observer of two hops does not see the
# same bytes on both.
#privacy = "standard"

#[reports]
# Which measurements this node reports to neighbours and peers: "full" (what was sent and what was
# received), "lightweight" (what was received) or "minimal" (none: they then know neither round trip
# nor loss).
#link = "full"
#session = "full"

#[perf]
# Which nodes may run a test with this node (`weft perf`): "peers" (those listed here), "open" (every
# node) or "off".
#allow = "peers"
# Whether tests outside the tunnel are served (`weft perf --raw`), between the two addresses of the
# direct link only.
#raw = false
# Limits of one test: seconds (up to 3600), TCP streams in each direction (up to 64), and Mbit/s that
# this node sends.
#max_s = 120
#max_streams = 16
#max_mbit_s = 10000
# Seconds of tests that one peer may run within an hour.
#hourly_s = 600

#[control]
# A user of this host, by name or number, who may do with root's daemon all that root may: stop it,
# change it, see the addresses of peers. Members of the group weft may as well. Other users see
# names, states and counters, and send echoes. "" is none.
#operator = ""

#[log]
# error, warn, info, debug, trace, or directives such as "info,weft_host=debug".
#level = "info"
# "text" or "json".
#format = "text"
"#;
