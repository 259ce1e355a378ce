//! `lanes`, `prefer_lanes`: how many threads move packets, and whether they go before other programs.

use super::Config;
use super::reader::{Fault, Section};

/// Most lanes: as many as fast frames can tell of.
const MOST: u32 = weft_packet::MAX_LANES as u32;
/// Most lanes that are taken without being asked for. More of them want a network card that feeds them.
const MOST_BY_ITSELF: usize = 8;

impl Config {
    /// The number of lanes to run: as set, or by the number of processors that this process may use.
    ///
    /// A lane under load is one busy processor, and the programs that send and receive through it, and the network card's
    /// interrupts, need the others. So half of them are for lanes. With two or fewer a second lane would only take turns
    /// with what feeds it.
    #[must_use]
    pub fn lanes(&self) -> u8 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.lanes.unwrap_or_else(|| by_cores(cores))
    }

    pub(super) fn read_lanes(&mut self, root: &mut Section<'_>) -> Result<(), Fault> {
        if !root.is_auto("lanes") {
            let item = root.integer("lanes", 1..=MOST, "lanes")?;
            // The range fits, so nothing is lost here.
            self.lanes = item.and_then(|item| u8::try_from(item.value).ok());
        }
        if let Some(item) = root.boolean("prefer_lanes")? {
            self.prefer_lanes = item.value;
        }
        Ok(())
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
