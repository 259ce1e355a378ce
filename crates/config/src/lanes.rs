//! How many threads move packets.

use super::Config;

/// Maximum number of lanes if none is configured. More lanes need a network card that feeds them.
const MOST_BY_ITSELF: usize = 8;

impl Config {
    /// The number of lanes to run: the configured number, or one that follows from the number of
    /// processors that this process may use.
    ///
    /// A lane under load occupies one processor. The programs that send and receive through it and
    /// the interrupts of the network card need other processors, so half of them are for lanes.
    /// With two processors or fewer, a second lane would only alternate with what feeds it.
    #[must_use]
    pub fn lanes(&self) -> u8 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.lanes.unwrap_or_else(|| by_cores(cores))
    }
}

fn by_cores(cores: usize) -> u8 {
    (cores / 2).clamp(1, MOST_BY_ITSELF) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_processors_get_a_lane() {
        let lanes = [1, 2, 3, 4, 6, 8, 16, 17, 128].map(by_cores);
        assert_eq!(lanes, [1, 1, 1, 2, 3, 4, 8, 8, 8]);
    }
}
