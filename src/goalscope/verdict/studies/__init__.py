"""Studies that come with the package, as YAML files; registered like those of any other package."""

from goalscope.verdict.preflight.study_files import register_studies

register_studies(__name__)
