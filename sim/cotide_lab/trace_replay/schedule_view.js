"use strict";
// Draws the schedules of the page's data on two canvases that share one window of time. Boxes while at most BOXES pieces
// are in sight, else the share of the machine in use. Nothing is loaded from anywhere.
(function () {
  const BOXES = 20000;
  const HOURS = 3600, DAYS = 86400;
  const data = JSON.parse(document.getElementById("schedules").textContent);
  const canvas = document.getElementById("jobs"), under = document.getElementById("use");
  const processors = document.getElementById("processors"), percents = document.getElementById("percents");
  const said = document.getElementById("said"), chooser = document.getElementById("policy");

  function unpack(text) {
    const bytes = atob(text), out = [];
    let value = 0, scale = 1;
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes.charCodeAt(at);
      value += (byte & 127) * scale;
      scale *= 128;
      if (byte < 128) {
        out.push(value % 2 ? -(value + 1) / 2 : value / 2);
        value = 0;
        scale = 1;
      }
    }
    return Float64Array.from(out);
  }
  function sums(values) {
    let total = 0;
    return values.map((value) => (total += value));
  }
  // The first index whose value is above the limit, in rising values.
  function above(values, limit) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] <= limit) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  const log = {
    number: sums(unpack(data.columns.number)),
    submit: sums(unpack(data.columns.submit)),
    run: unpack(data.columns.run),
    demand: unpack(data.columns.demand),
  };

  // Processor seconds if every job held its processors from its begin for ever; two of these make the use of a time.
  function area(begins, demand) {
    const order = Array.from(begins.keys()).sort((a, b) => begins[a] - begins[b]);
    const times = Float64Array.from(order, (job) => begins[job]);
    const held = sums(Float64Array.from(order, (job) => demand[job]));
    const offset = sums(Float64Array.from(order, (job) => demand[job] * begins[job]));
    return function (time) {
      const count = above(times, time);
      return count ? held[count - 1] * time - offset[count - 1] : 0;
    };
  }
  function prepare(policy) {
    if (policy.start) return policy;
    const wait = unpack(policy.wait), count = unpack(policy.count);
    const first = sums(unpack(policy.first)), size = unpack(policy.size);
    policy.start = log.submit.map((submit, job) => submit + wait[job]);
    policy.end = policy.start.map((start, job) => start + log.run[job]);
    const started = area(policy.start, log.demand), ended = area(policy.end, log.demand);
    policy.used = (time) => started(time) - ended(time);
    const pieces = [];
    let piece = 0;
    for (let job = 0; job < data.jobs; job++)
      for (let last = piece + count[job]; piece < last; piece++) pieces.push([job, first[piece], size[piece]]);
    pieces.sort((a, b) => policy.start[a[0]] - policy.start[b[0]]);
    policy.pieces = pieces;
    policy.begins = Float64Array.from(pieces, (one) => policy.start[one[0]]);
    // The latest end among a piece and all before it: where a search for what is in sight may begin.
    let latest = 0;
    policy.latest = Float64Array.from(pieces, (one) => (latest = Math.max(latest, policy.end[one[0]])));
    return policy;
  }

  let shown = prepare(data.policies[data.best]);
  const whole = [0, data.policies.reduce((last, policy) => {
    const wait = unpack(policy.wait);
    return log.submit.reduce((most, submit, job) => Math.max(most, submit + wait[job] + log.run[job]), last);
  }, 1)];
  let from = whole[0], to = whole[1];

  function sized(target) {
    const ratio = window.devicePixelRatio || 1;
    const wide = target.clientWidth, high = target.clientHeight;
    target.width = Math.round(wide * ratio);
    target.height = Math.round(high * ratio);
    const pen = target.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, high);
    pen.font = "11px system-ui,sans-serif";
    return [pen, wide, high];
  }
  function told(seconds) {
    const span = to - from;
    if (span > 20 * DAYS) return (seconds / DAYS).toFixed(0) + " d";
    if (span > 2 * DAYS) return (seconds / DAYS).toFixed(1) + " d";
    if (span > 2 * HOURS) return (seconds / HOURS).toFixed(1) + " h";
    return seconds.toFixed(0) + " s";
  }
  // A duration in its two largest units: 2 d 3 h, 4 min 10 s.
  function lasting(seconds) {
    const units = [["d", DAYS], ["h", HOURS], ["min", 60], ["s", 1]], parts = [];
    let rest = Math.round(seconds);
    for (const [unit, size] of units) {
      const count = Math.floor(rest / size);
      rest -= count * size;
      if (count || parts.length) parts.push(count + " " + unit);
    }
    return parts.slice(0, 2).filter((part) => !part.startsWith("0 ")).join(" ") || "0 s";
  }
  // Round values from 0 to the limit, at most five steps.
  function ticks(limit) {
    let step = Math.pow(10, Math.floor(Math.log10(limit)));
    for (const part of [0.2, 0.5, 1]) if (limit / (step * part) <= 5) { step *= part; break; }
    const out = [];
    for (let value = 0; value <= limit; value += step) out.push(value);
    return out;
  }
  // The axis to the left of a canvas, 0 at its bottom; the lowest `below` pixels belong to labels of time.
  function drawAxis(target, limit, unit, below) {
    const [pen, wide, high] = sized(target);
    pen.fillStyle = getComputedStyle(document.body).color;
    pen.textAlign = "right";
    for (const value of ticks(limit)) {
      const y = (high - below) * (1 - value / limit);
      pen.fillRect(wide - 4, Math.min(high - 1, y), 4, 1);
      pen.fillText(value.toLocaleString("en") + unit, wide - 7, Math.min(high - 2, Math.max(9, y + 4)));
    }
  }
  function inSight(policy) {
    const found = [];
    const last = above(policy.begins, to);
    for (let at = above(policy.latest, from); at < last; at++) {
      if (policy.end[policy.pieces[at][0]] > from) found.push(policy.pieces[at]);
      if (found.length > BOXES) return null;
    }
    return found;
  }
  // Mean share in use in each pixel's time, as [left, share] pairs of the window.
  function shares(policy, wide) {
    const out = [], step = (to - from) / wide;
    let before = policy.used(from);
    for (let x = 0; x < wide; x++) {
      const now = policy.used(from + (x + 1) * step);
      out.push((now - before) / (step * data.processors));
      before = now;
    }
    return out;
  }
  function colour(job) {
    return "hsl(" + ((log.number[job] * 137.5) % 360).toFixed(0) + " 60% 60%)";
  }
  function drawJobs() {
    const [pen, wide, high] = sized(canvas);
    const found = inSight(shown);
    const across = (time) => ((time - from) / (to - from)) * wide;
    const down = high / data.processors;
    if (found) {
      for (const [job, first, size] of found) {
        const left = across(shown.start[job]);
        pen.fillStyle = colour(job);
        pen.fillRect(left, high - (first + size) * down, Math.max(0.5, across(shown.end[job]) - left), Math.max(0.5, size * down));
      }
    } else {
      pen.fillStyle = data.colours[data.policies.indexOf(shown) % data.colours.length];
      shares(shown, wide).forEach((share, x) => pen.fillRect(x, high * (1 - share), 1, high * share));
    }
    drawAxis(processors, data.processors, "", 0);
    const figures = shown.figures;
    said.textContent =
      shown.name + ": mean wait " + lasting(figures.wait_seconds_mean) + ", bounded slowdown " +
      figures.bounded_slowdown_mean.toFixed(2) + "; from " + told(from) + " to " + told(to) +
      (found ? ", " + found.length.toLocaleString("en") + (found.length === 1 ? " box" : " boxes") + " in sight" : ": share in use, zoom in to see jobs");
    return found;
  }
  function drawUse() {
    const [pen, wide, high] = sized(under);
    data.policies.forEach((policy, number) => {
      if (!policy.start && policy !== shown && data.jobs > BOXES) return;
      pen.strokeStyle = data.colours[number % data.colours.length];
      pen.lineWidth = policy === shown ? 2 : 0.8;
      pen.beginPath();
      shares(prepare(policy), wide).forEach((share, x) => pen.lineTo(x, (high - 14) * (1 - share)));
      pen.stroke();
    });
    drawAxis(percents, 100, " %", 14);
    pen.fillStyle = getComputedStyle(document.body).color;
    for (let part = 0; part <= 4; part++) {
      pen.textAlign = ["left", "center", "center", "center", "right"][part];
      pen.fillText(told(from + ((to - from) * part) / 4), (wide * part) / 4, high - 2);
    }
  }
  let boxes = null, waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      boxes = drawJobs();
      drawUse();
    });
  }
  function zoom(factor, middle) {
    const span = Math.min(whole[1] - whole[0], Math.max(10, (to - from) * factor));
    const part = (middle - from) / (to - from);
    move(middle - part * span, span);
  }
  function move(begin, span) {
    from = Math.min(Math.max(whole[0], begin), whole[1] - span);
    to = from + span;
    draw();
  }
  function timeAt(event) {
    return from + (event.offsetX / canvas.clientWidth) * (to - from);
  }
  function tell(event) {
    if (!boxes) return;
    const time = timeAt(event), processor = (1 - event.offsetY / canvas.clientHeight) * data.processors;
    for (const [job, first, size] of boxes)
      if (shown.start[job] <= time && time < shown.end[job] && first <= processor && processor < first + size) {
        said.textContent =
          "job " + log.number[job] + ": submitted " + lasting(log.submit[job]) + " after the first, waited " +
          lasting(shown.start[job] - log.submit[job]) + ", ran " + lasting(log.run[job]) + " on " + log.demand[job] +
          (log.demand[job] === 1 ? " processor" : " processors");
        return;
      }
  }

  data.policies.forEach((policy, number) => chooser.add(new Option(policy.name, String(number))));
  chooser.value = String(data.best);
  chooser.onchange = () => {
    shown = prepare(data.policies[Number(chooser.value)]);
    draw();
  };
  document.getElementById("closer").onclick = () => zoom(0.5, (from + to) / 2);
  document.getElementById("wider").onclick = () => zoom(2, (from + to) / 2);
  document.getElementById("whole").onclick = () => move(whole[0], whole[1] - whole[0]);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, from: from };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return tell(event);
    move(held.from - ((event.clientX - held.x) / canvas.clientWidth) * (to - from), to - from);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (held = null));
  canvas.addEventListener("keydown", (event) => {
    const step = (to - from) / 5, keys = { ArrowLeft: -step, ArrowRight: step };
    if (event.key in keys) move(from + keys[event.key], to - from);
    if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 0.5 : 2, (from + to) / 2);
  });
  window.addEventListener("resize", draw);
  draw();
  // On a large log the other policies' use follows one by one, so that the first picture need not wait for it.
  (function prepareNext() {
    const next = data.policies.find((policy) => !policy.start);
    if (next) setTimeout(() => { prepare(next); draw(); prepareNext(); }, 50);
  })();
})();
