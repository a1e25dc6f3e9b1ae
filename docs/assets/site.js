// The theme puts wide tables into boxes that scroll, which a keyboard cannot reach by itself.
new MutationObserver(() => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    box.tabIndex = 0;
  }
}).observe(document, { childList: true, subtree: true });
