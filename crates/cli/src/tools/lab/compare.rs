//! `weft lab compare`: a comparison of two benches.

use std::path::{Path, PathBuf};

use weft_lab::bench::compare::{Verdict, columns, compare, read};
use weft_lab::bench::record::Record;

use crate::failure::Failure;
use crate::output::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder of a bench
    first: PathBuf,
    /// The folder of another bench
    second: PathBuf,
    /// Fail unless the intervals of all arms in all cases overlap
    #[arg(long)]
    expect_same: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let all = compare(&records(&args.first)?, &records(&args.second)?);
    let mut out = Out::new();
    out.text(&format!("{}\n", columns()))?;
    for row in &all {
        out.text(&format!("{row}\n"))?;
    }
    let same = all.iter().filter(|row| row.verdict() == Verdict::Same).count();
    out.text(&format!(
        "\n{same} of {} overlap; medians and their ratios with 95 % intervals\n",
        all.len()
    ))?;
    if args.expect_same && same < all.len().max(1) {
        return Err(Failure::Told);
    }
    Ok(())
}

fn records(folder: &Path) -> Result<Vec<Record>, Failure> {
    read(folder).map_err(|error| Failure::Usage(format!("{} is not the folder of a bench: {error}", folder.display())))
}
