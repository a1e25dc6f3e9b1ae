// Wide tables and drawings stand in boxes that scroll, which a keyboard cannot reach by itself.
const BOXES = ".md-typeset__scrollwrap, .md-typeset p:has(> img[src$='.svg'])";
new MutationObserver(() => {
  for (const box of document.querySelectorAll(BOXES)) box.tabIndex = 0;
}).observe(document, { childList: true, subtree: true });
