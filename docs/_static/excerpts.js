"use strict";

/* Excerpts below search results, from the texts in texts.js. */
const HALF = 110;

/** The part of a text around the first of the words that occurs in it. */
function excerptOf(text, words) {
  const lower = text.toLowerCase();
  const places = words.map((word) => lower.indexOf(word)).filter((place) => place >= 0);
  if (!places.length) return "";
  const place = Math.min(...places);
  const start = Math.max(0, place - HALF);
  const end = Math.min(text.length, place + HALF);
  return (start ? "… " : "") + text.slice(start, end).trim() + (end < text.length ? " …" : "");
}

/** The name of the page that a link of a result leads to. */
function pageOf(link) {
  return link.split(/[?#]/)[0].replace(/\.html$/, "").replace(/^(\.\/)+/, "");
}

/** Add an excerpt to every result that has none. */
function addExcerpts(results, words, texts) {
  results.querySelectorAll("ul.search li").forEach((item) => {
    const link = item.querySelector("a");
    if (!link || item.dataset.excerpt) return;
    item.dataset.excerpt = "done";
    const found = excerptOf(texts[pageOf(link.getAttribute("href"))] || "", words);
    if (!found) return;
    const paragraph = document.createElement("p");
    paragraph.className = "context";
    paragraph.textContent = found;
    item.appendChild(paragraph);
  });
}

if (typeof document !== "undefined") {
  document.addEventListener("DOMContentLoaded", () => {
    const results = document.getElementById("search-results");
    const asked = new URLSearchParams(window.location.search).get("q") || "";
    const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
    if (!results || !words.length || !window.pageTexts) return;
    const add = () => addExcerpts(results, words, window.pageTexts);
    new MutationObserver(add).observe(results, { childList: true, subtree: true });
    add();
  });
} else {
  module.exports = { excerptOf, pageOf };
}
