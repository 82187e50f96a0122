//! Answers to requests that the guard let pass.

use std::sync::Arc;

use annals_format::{LocationId, RegionId};
use annals_merger::{MergeError, StopFlag};
use hyper::StatusCode;
use serde_json::{Value, json};

use crate::answers;
use crate::event_bins;
use crate::page;
use crate::parameters::{Question, Request};
use crate::subject::{Subject, chain};
use crate::trace::ServedTrace;

/// How long an answer is good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// Ask again each time.
    Now,
    /// For ever: the address has the trace's id. The text names it.
    Forever(String),
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Its status.
    pub(crate) status: StatusCode,
    /// The type of its body.
    pub(crate) content_type: &'static str,
    /// How long it is good.
    pub(crate) freshness: Freshness,
    /// Its body.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns an error.
    pub(crate) fn error(status: StatusCode, why: &str) -> Self {
        Self::json(status, &json!({"error": why}))
    }

    fn json(status: StatusCode, value: &Value) -> Self {
        Self {
            status,
            content_type: "application/json",
            freshness: Freshness::Now,
            body: value.to_string().into_bytes(),
        }
    }
}

/// Answers a request. Once `stop` is stopped, no more events are read for it.
pub(crate) fn answer(subjects: &[Arc<Subject>], request: Request, stop: &StopFlag) -> Answer {
    match request {
        Request::File(path) => match page::file(&path) {
            Some((content_type, body)) => Answer {
                status: StatusCode::OK,
                content_type,
                freshness: Freshness::Now,
                body: body.to_vec(),
            },
            None => Answer::error(StatusCode::NOT_FOUND, "no such file"),
        },
        Request::Traces => {
            let traces: Vec<Value> = subjects.iter().map(|subject| subject.describe()).collect();
            Answer::json(StatusCode::OK, &json!({"version": 1, "traces": traces}))
        }
        Request::Of(id, question) => {
            let traces = subjects.iter().filter_map(|subject| subject.trace());
            let Some(trace) = traces.into_iter().find(|trace| trace.id == id) else {
                // It was another file when the page was opened.
                return Answer::error(
                    StatusCode::GONE,
                    "no such trace here any more: reload the page",
                );
            };
            if trace.is_replaced() {
                return Answer::error(StatusCode::GONE, "the file was replaced: reload the page");
            }
            let answered = answer_of(&trace.stopped_by(stop), question);
            answered.unwrap_or_else(|error| {
                Answer::error(StatusCode::INTERNAL_SERVER_ERROR, &chain(&error))
            })
        }
    }
}

fn answer_of(trace: &ServedTrace, question: Question) -> Result<Answer, MergeError> {
    let value = match question {
        Question::Tile(range, lanes) => {
            return Ok(Answer {
                status: StatusCode::OK,
                content_type: "application/octet-stream",
                freshness: Freshness::Forever(trace.id.clone()),
                body: trace.tile(range, &lanes)?,
            });
        }
        Question::Bins(range, lanes) => answers::bins(trace, range, &lanes)?,
        Question::Lanes => answers::lanes(trace)?,
        Question::Calls { location, at_ns } => {
            answers::calls(trace, LocationId::new(location), at_ns)?
        }
        Question::Regions(window, lanes) => answers::regions(trace, window, &lanes)?,
        Question::Waits(window, lanes, is_all) => answers::waits(trace, window, &lanes, is_all)?,
        Question::Samples(window, lanes, is_all) => {
            answers::samples_of(trace, window, &lanes, is_all)?
        }
        Question::Messages(window, is_all) => answers::messages(trace, window, is_all)?,
        Question::Metrics(window, columns) => answers::metric_curves(trace, window, columns)?,
        Question::MessageBins(window, columns) => event_bins::messages(trace, window, columns),
        Question::MetricBins(window, columns) => answers::metric_bins(trace, window, columns)?,
        Question::Search(text) => answers::search(trace, &text)?,
        Question::Find {
            region,
            from_ns,
            is_backward,
        } => answers::find(trace, RegionId::new(region), from_ns, is_backward)?,
        Question::Losses(window) => answers::losses(trace, window)?,
    };
    Ok(Answer {
        freshness: Freshness::Forever(trace.id.clone()),
        ..Answer::json(StatusCode::OK, &value)
    })
}
