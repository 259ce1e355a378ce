//! What a lane starts with.

use weft_contract::Report;
use weft_os::tun::Tun;
use weft_os::udp::UdpSocket;
use weft_packet::Lane;

/// Accepts reports of a lane's thread; it must not block. Returns the reports that it has no room
/// for: a proof is offered again, and any other report is dropped and counted.
pub type ReportSink = Box<dyn FnMut(Report) -> Vec<Report> + Send>;

/// Everything that a lane's thread owns.
pub struct LaneSetup<D = Tun, B = UdpSocket> {
    /// The packet path.
    pub lane: Lane,
    /// Its TUN queue.
    pub tun: D,
    /// Its sockets: datagrams leave by the first that serves their IP version.
    pub sockets: Vec<B>,
    /// Maximum number of datagrams in one send call.
    pub batch: usize,
    /// Whether the thread raises its priority while it moves bulk
    /// ([`LANE_NICE`](crate::LANE_NICE)).
    pub preferred: bool,
    /// The receiver of its reports.
    pub reports: ReportSink,
}
