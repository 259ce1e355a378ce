//! The configuration of a new node.

/// `#key = value` is a setting that is commented out, `# text` is a comment.
pub(super) const TEXT: &str = r#"# Configuration of a weft node. Lines that begin with # are comments; a setting that is commented
# out shows its default. To change it, remove the # before it and before the [table] above it, or add
# both at the end of the file. Changes take effect at the next `weft up`.

# Threads that move packets, 1 to 16. "auto" takes one for two processors, up to 8.
#lanes = "auto"
# While they move bulk they go before other programs (nice -10), where the system lets them.
#prefer_lanes = true

# One block for each peer. Write the other node's npub here, and this node's npub there.
# A peer without addresses is one that dials this node.
#[[peer]]
#npub = "npub1..."
#name = "bob"
#addresses = ["192.0.2.2:2121", "[2001:db8::2]:2121"]
#require_fast = false
# Networks behind it, IPv4 and IPv6: packets to them go there, and may come from there.
#networks = ["10.2.0.0/16", "2001:db8:2::/48"]

#[identity]
# The secret key's file, relative to the state directory.
#key_file = "identity.key"

#[udp]
# One socket for each entry.
#listen = ["0.0.0.0:2121", "[::]:2121"]
# Largest UDP payload sent, in bytes. "auto" probes direct paths between weft nodes for up to 1472 and has 1280 elsewhere.
#mtu = "auto"
# How long after probing a path is tried again for more.
#raise_s = 600
# Datagrams that leave in one call at most: 1 to 64; 1 does without UDP_SEGMENT. What the kernel or a driver refuses falls
# back by itself: `weft status` tells.
#batch = 64
# Let the kernel join datagrams that arrive (UDP_GRO).
#gro = true

#[tun]
#name = "weft0"
# In bytes, 1280 at least. "auto" is what the largest UDP payload has room for: 1470 unless [udp] mtu is set.
#mtu = "auto"
# Further addresses of the interface, as "10.1.0.1/24", and networks behind this node that peers may send to, as
# "192.168.7.0/24".
#addresses = []
#networks = []
# Take and give packets unsplit and without checksums, where the kernel can. false: one packet in each read and write.
#offload = true

#[link]
# A silent link is probed this often, and given up after that long.
#heartbeat_s = 10
#dead_after_s = 30

#[rekey]
# Age at which links and sessions get fresh keys.
#interval_s = 120

#[session]
# A session without data is dropped after this long.
#idle_s = 80

#[mesh]
# Reach peers through other nodes, and let others do so.
#enabled = true
# Carry traffic of others, which stays sealed end to end.
#transit = true
# Let nodes that are not listed below link with this one, to be carried. IP packets pass between listed peers alone.
#open = false
# Keys of nodes that may link although open = false, and of nodes that may not although open = true.
#allow = []
#deny = []

#[dns]
# Answer questions about NAME.fips and npub1....fips, over UDP and TCP, to this machine alone.
#enabled = true
#listen = ["127.0.0.1:5354", "[::1]:5354"]
# Have systemd-resolved send such questions here, where it runs. Other names go where they went before.
#register = true

#[fast]
# Fast frames: between weft nodes each packet is sealed once, not twice, and weft nodes on the way seal a few bytes.
# Off, or with a FIPS node at the other end or on the way, packets go in FIPS frames.
#enabled = true
# Send data in fast frames or not at all: what cannot go in one waits, and is dropped in the end. A peer's require_fast
# says so for that peer alone, either way.
#require = false
# "auto" takes the cipher that costs both ends least; "aes-256-gcm" or "chacha20-poly1305" offers that alone.
#suite = "auto"
# Frames after which a key moves on to the next.
#phase_frames = 8388608
# "full" seals all of a frame anew at each hop, so that who watches two hops does not see the same bytes on both.
#privacy = "standard"

#[reports]
# What the other side is told of its measurements: "full" (what was sent and what came),
# "lightweight" (what came) or "minimal" (nothing: it then knows neither round trip nor loss).
#link = "full"
#session = "full"

#[perf]
# Who may measure with this node (`weft perf`): "peers" (those listed here), "open" (every node), "off".
#allow = "peers"
# Serve tests outside the tunnel (`weft perf --raw`), between the two addresses of the direct link alone.
#raw = false
# What one test has at most: seconds (up to 3600), TCP streams a direction (up to 64), and Mbit/s that this node sends.
#max_s = 120
#max_streams = 16
#max_mbit_s = 10000
# Seconds of tests that one peer gets within an hour.
#hourly_s = 600

#[log]
# error, warn, info, debug, trace, or directives such as "info,weft_node=debug".
#level = "info"
# "text" or "json".
#format = "text"
"#;
