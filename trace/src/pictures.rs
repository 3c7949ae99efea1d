//! The pictures of a session: a flame graph of folded stacks, and charts.

use crate::error::Error;
use crate::flame::Flame;
use crate::options::Options;
use crate::picture::{self, PictureFile};
use crate::plan::{ObjectPlan, Plan};
use crate::print::Formats;
use crate::user_side::UserSide;

/// Functions by which scripts print histograms.
const HISTOGRAMS: [&str; 2] = ["print_hist", "print_lhist"];

/// Those that are drawn after END.
#[derive(Debug, Default)]
pub(crate) struct Pictures {
    flame: Option<Flame>,
    charts: Option<PictureFile>,
}

impl Pictures {
    /// Prepares those that the options name.
    ///
    /// # Errors
    /// There would be nothing in one, or its file cannot be made.
    pub(crate) fn new(options: &Options, plan: &Plan) -> Result<Pictures, Error> {
        let objects = plan.objects.iter().map(|plan| &plan.object);
        let flame = options.flamegraph.as_deref().map(|path| Flame::new(path, objects)).transpose()?;
        let charts = options.svg.as_deref().map(PictureFile::create).transpose()?;
        match charts {
            Some(file) if !plan.objects.iter().any(has_charts) => Err(file.empty(
                "no map is a histogram or prints every interval (MAP_HIST, DISPLAY), and no program calls print_hist()",
            )),
            charts => Ok(Pictures { flame, charts }),
        }
    }

    /// Lets an object keep what is drawn at the end.
    pub(crate) fn keep(&self, user_side: &mut UserSide) {
        if self.flame.is_some() {
            user_side.fold();
        }
        if self.charts.is_some() {
            user_side.keep_charts();
        }
    }

    /// Draws them.
    ///
    /// # Errors
    /// There is nothing in one, or its file cannot be written.
    pub(crate) fn draw(self, user_sides: &mut [UserSide]) -> Result<(), Error> {
        let flame = self.flame.map(|flame| flame.draw(user_sides.iter_mut().map(UserSide::folded)));
        let charts = self.charts.map(|file| {
            let charts: Vec<_> = user_sides.iter_mut().flat_map(UserSide::charts).collect();
            picture::draw(file, &charts)
        });
        flame.into_iter().chain(charts).fold(Ok(()), Result::and)
    }
}

/// Whether an object may have something for a chart.
fn has_charts(plan: &ObjectPlan) -> bool {
    let object = &plan.object;
    let calls = object.externs.iter().any(|symbol| HISTOGRAMS.contains(&&*symbol.name));
    calls
        || plan.declarations.have_charts()
        || Formats::of(object).is_some_and(|formats| formats.draw_histograms(object))
}
