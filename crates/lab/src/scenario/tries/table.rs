//! Tries as tables of Markdown: a row for each cell, and a matrix of sides.

use super::super::results::Settled;
use super::Try;

const DIRECT: &str = "direct";
const NONE: &str = "none";

/// What came of the tries of one cell.
struct Summary<'a> {
    cell: &'a str,
    tries: usize,
    /// Times from the session to the direct path at both ends, ms, in order.
    direct: Vec<u64>,
    relayed: usize,
    none: usize,
    /// What the first node of the first try without a direct path says.
    why: &'a str,
}

impl<'a> Summary<'a> {
    fn of(cell: &'a str, tries: &'a [Try]) -> Self {
        let own: Vec<&Try> = tries.iter().filter(|one| one.cell == cell).collect();
        let settled: Vec<&Settled> = own.iter().filter_map(|one| one.settled.as_ref()).collect();
        let both = |settled: &&&Settled| settled.paths.iter().all(|path| path == DIRECT);
        let time = |settled: &&Settled| settled.direct_after_ms.iter().flatten().max().copied();
        let mut direct: Vec<u64> = settled.iter().filter(both).filter_map(time).collect();
        direct.sort_unstable();
        let none = settled
            .iter()
            .filter(|settled| settled.paths.iter().any(|path| path == NONE))
            .count();
        let why = settled.iter().find(|settled| !settled.why.is_empty());
        Self {
            cell,
            tries: own.len(),
            relayed: settled.len() - direct.len() - none,
            direct,
            none,
            why: why.map_or("", |settled| &settled.why),
        }
    }

    /// Seconds, of the upper of two medians.
    fn median(&self) -> Option<f64> {
        self.direct.get(self.direct.len() / 2).map(|ms| *ms as f64 / 1e3)
    }

    fn worst(&self) -> Option<f64> {
        self.direct.last().map(|ms| *ms as f64 / 1e3)
    }

    /// The cell of the matrix: median and worst time, or `R` or `-`, and how many tries if not all
    /// were alike.
    fn short(&self) -> String {
        let of = |count: usize| {
            if count == self.tries {
                String::new()
            } else {
                format!(" {count}/{}", self.tries)
            }
        };
        match (self.median(), self.worst()) {
            (Some(median), Some(worst)) => format!("{median:.1} / {worst:.1}{}", of(self.direct.len())),
            _ if self.relayed > 0 => format!("R{}", of(self.relayed)),
            _ if self.none > 0 => format!("-{}", of(self.none)),
            _ => String::new(),
        }
    }
}

/// A row for each cell: tries, how many were direct, relayed or without a path, the median and the
/// worst time from the session to the direct path, and the reason of one that was not direct.
#[must_use]
pub fn cells(order: &[String], tries: &[Try]) -> String {
    let mut text = String::from(
        "| cell | tries | direct | relayed | none | median, s | worst, s | why not direct |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
    for cell in order {
        let own = Summary::of(cell, tries);
        text += &format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
            own.cell,
            own.tries,
            own.direct.len(),
            own.relayed,
            own.none,
            number(own.median()),
            number(own.worst()),
            own.why.replace('|', "/"),
        );
    }
    text
}

/// The matrix of the sides, in the order in which cells name them. A pair without a cell has an empty place.
#[must_use]
pub fn pairs(order: &[String], tries: &[Try]) -> String {
    let mut sides: Vec<&str> = Vec::new();
    for side in order
        .iter()
        .filter_map(|cell| cell.split_once('+'))
        .flat_map(|(a, b)| [a, b])
    {
        if !sides.contains(&side) {
            sides.push(side);
        }
    }
    let mut text = format!("| | {} |\n|{}\n", sides.join(" | "), "---|".repeat(sides.len() + 1));
    for a in &sides {
        text += &format!("| {a} |");
        for b in &sides {
            let cell = format!("{a}+{b}");
            let short = order.contains(&cell).then(|| Summary::of(&cell, tries).short());
            text += &format!(" {} |", short.unwrap_or_default());
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(cell: &str, seed: u32, paths: [&str; 2], after: Option<u64>, why: &str) -> Try {
        Try {
            cell: cell.to_owned(),
            seed,
            ok: true,
            settled: Some(Settled {
                paths: paths.map(str::to_owned),
                direct_after_ms: [after, after.map(|ms| ms / 2)],
                why: why.to_owned(),
            }),
        }
    }

    fn tries() -> (Vec<String>, Vec<Try>) {
        let direct = ["direct", "direct"];
        let tries = vec![
            one("a+a", 1, direct, Some(400), ""),
            one("a+a", 2, direct, Some(1_900), ""),
            one("a+a", 3, direct, Some(200), ""),
            one("a+b", 1, ["via relay", "direct"], None, "no address | answers"),
            one("a+b", 2, direct, Some(3_000), ""),
            one("b+b", 1, ["none", "none"], None, ""),
        ];
        (["a+a", "a+b", "b+b"].map(str::to_owned).into(), tries)
    }

    #[test]
    fn a_row_has_counts_times_and_a_reason() {
        let (order, tries) = tries();
        let text = cells(&order, &tries);
        let rows: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| a+a | 3 | 3 | 0 | 0 | 0.40 | 1.90 |  |",
                "| a+b | 2 | 1 | 1 | 0 | 3.00 | 3.00 | no address / answers |",
                "| b+b | 1 | 0 | 0 | 1 |  |  |  |",
            ]
        );
    }

    #[test]
    fn the_matrix_has_a_place_for_every_two_sides() {
        let (order, tries) = tries();
        let text = pairs(&order, &tries);
        assert_eq!(
            text,
            "| | a | b |\n|---|---|---|\n| a | 0.4 / 1.9 | 3.0 / 3.0 1/2 |\n| b |  | - |\n"
        );
    }
}
