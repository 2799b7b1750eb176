"""What everything else stands on: declared types, what lies in data/, texts of tokens; knows no run and no score."""
