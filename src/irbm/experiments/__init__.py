"""The paper's choices, one file per table or figure. No algorithms."""
